#!/usr/bin/env node
// `npx agent-registry COMMAND`: an agent without ETH registers, attests, and signs requests. The rules are the core's, in wasm; here
// are files, arguments and requests.
import { open, readFile } from "node:fs/promises";
import { parseArgs } from "node:util";
import { RegistryError } from "./error.js";
import initKey, { Key } from "./key.js";
import init, { Registry, attestCompliance, checkRequest, keccak256, parse, registerAgent } from "./node.js";
import { signRequest } from "./sign.js";

const USAGE = `Usage: npx agent-registry COMMAND

  register --relayer URL --key FILE --constitution FILE --capabilities FILE --scope TEXT
           [--liable WALLET] [--parent ID] [--self-modifying] [--api URL | --rpc URL]
      registers the key's wallet as an agent; its liable person is WALLET, or itself. Where it is registered
      already, its record is read at --api or --rpc: with the same values that is a success
  attest ID --relayer URL --key FILE
      attests for an agent, as its creator, its wallet or its liable person
  sign URL --key FILE --chain ID [--method NAME] [--data TEXT] [--header "NAME: VALUE"]... [--send]
      prints the request's headers with its signature; or sends it, and prints the answer
  status WALLET (--api URL | --rpc URL --registry ADDRESS)
      prints the verdict on a wallet; the exit status is 0 for "provision", and otherwise 3

FILE of --key has a private key in 64 hexadecimal digits, and is readable by its owner alone (mode 600):
  (umask 077; openssl rand -hex 32 > agent.key)
Calls cost no ETH: the relayer sends them. An API key that it has given is read from KYA_RELAYER_KEY.
Exit status: 1 what was asked for failed, 2 the command is wrong.`;

/** Gas that the forwarder gives an attestation. */
const ATTEST = { gas: 150_000 };
/** Gas of a registration: what is asked for, and the least that it takes, as each word of the scope is a new storage slot. */
const registering = (bytes) => ({ gas: 700_000 + 1_500 * bytes, least: 22_100 * Math.ceil(bytes / 32) });
/** How long a relay is waited for, and how often it is asked for, in milliseconds. */
const [PATIENCE, PAUSE] = [120_000, 1_000];
/** What a repetition does not change, whatever the status. */
const FINAL = new Set(["CALL_REVERTED", "PENDING", "RELAY_FAILED"]);
/** For how many seconds a relayer may carry out what was signed. */
const VALID = 3_600;
/** The longest duration of a request, in milliseconds. */
const TIMEOUT = 60_000;

const COMMANDS = {
  register: {
    needs: ["relayer", "key", "constitution", "capabilities", "scope"],
    options: { liable: {}, parent: {}, "self-modifying": { type: "boolean" }, api: {}, rpc: {} },
    async run({ scope, liable, parent = 0, "self-modifying": selfModifying = false, api, rpc, ...options }) {
      const key = await keyOf(options);
      const [constitution, capabilities] = await Promise.all([options.constitution, options.capabilities].map(textOf));
      const registration = {
        haftungsperson: liable ?? key.address,
        agentWallet: key.address,
        constitutionHash: keccak256(constitution),
        capabilityHash: keccak256(capabilities),
        operationalScope: scope,
        parentAgentId: BigInt(parent),
        selfModifying,
      };
      let done;
      try {
        done = await relayed(options.relayer, key, registerAgent(registration), registering(Buffer.byteLength(scope)));
      } catch (error) {
        if (!/already registered/i.test(error.message) || (api ?? rpc) === undefined) throw error;
        const record = { creator: key.address, ...registration };
        done = { agentId: await registeredAs(record, { ...options, api, rpc }), already: true };
      }
      const { agentId, already = false, txHash = null } = done;
      print({ agentId, wallet: key.address, haftungsperson: registration.haftungsperson, already, txHash });
    },
  },
  attest: {
    takes: "the agent's id",
    needs: ["relayer", "key"],
    async run({ relayer, ...options }, agentId) {
      const { txHash } = await relayed(relayer, await keyOf(options), attestCompliance(agentId), ATTEST);
      print({ agentId: Number(agentId), txHash });
    },
  },
  sign: {
    takes: "a URL",
    needs: ["key", "chain"],
    options: { method: {}, data: {}, header: { multiple: true }, send: { type: "boolean" } },
    async run({ chain, data, method = data === undefined ? "GET" : "POST", header = [], send, ...options }, url) {
      const key = await keyOf(options);
      const headers = header.map((line) => /^([^:]+):\s*(.*)$/.exec(line)?.slice(1) ?? wrong(`--header ${line}: NAME: VALUE`));
      const account = { address: key.address, chainId: chain, signMessage: (message) => key.signMessage(message) };
      const signed = await signRequest(requestOf(url, { method, headers, body: data }), account);
      if (!send) {
        for (const [name, value] of signed.headers) console.log(`${name}: ${value}`);
        return;
      }
      const { answer, text } = await exchange(signed, { redirect: "manual" });
      console.error(`HTTP ${answer.status}`);
      console.log(text);
      if (!answer.ok) process.exitCode = 1;
    },
  },
  status: {
    takes: "a wallet",
    options: { api: {}, rpc: {}, registry: {} },
    async run({ api, rpc, registry }, wallet) {
      if (api === undefined && (rpc === undefined || registry === undefined)) wrong("status needs --api, or --rpc and --registry");
      const verdict = await (api === undefined
        ? new Registry({ rpc, registry }).kya(wallet)
        : ask(`${base(api)}/api/v1/kya/${encodeURIComponent(wallet)}`));
      if (typeof verdict.decision !== "string") throw unreadable(api);
      print(verdict);
      if (verdict.decision !== "provision") process.exitCode = 3;
    },
  },
};

const isUrl = (text) => /^https?:/i.test(text) && URL.canParse(text);
const URL_FORM = [isUrl, "a URL that begins with https:// or http://"];
const ADDRESS_FORM = [(text) => /^0x[0-9a-fA-F]{40}$/.test(text), "0x and 40 hexadecimal digits"];
const NUMBER_FORM = [(text) => /^([0-9]+|0x[0-9a-f]+)$/i.test(text), "a whole number"];
/** The forms of arguments, by the names of options and of what commands take. */
const FORMS = {
  "a URL": URL_FORM,
  relayer: URL_FORM,
  api: URL_FORM,
  // Several endpoints, too.
  rpc: [(text) => text.split(/[\s,]+/).every((url) => url === "" || isUrl(url)), "URLs that begin with https:// or http://"],
  "a wallet": ADDRESS_FORM,
  liable: ADDRESS_FORM,
  registry: ADDRESS_FORM,
  "the agent's id": NUMBER_FORM,
  parent: NUMBER_FORM,
  chain: [(text) => /^[1-9][0-9]*$/.test(text), "a whole number"],
};

/** A command that cannot be carried out as it is written. */
class Misuse extends Error {}

function wrong(message) {
  throw new Misuse(message);
}

/** A request; what makes none, such as content with GET, is a wrong command. */
function requestOf(url, init) {
  try {
    return new Request(url, init);
  } catch ({ message }) {
    return wrong(message);
  }
}

const base = (url) => url.replace(/\/+$/, "");

const print = (value) =>
  console.log(JSON.stringify(value, (_, member) => (typeof member === "bigint" ? String(member) : member), 2));

/** The key in a file that its owner alone may read. */
async function keyOf({ key: path }) {
  const file = await open(path);
  try {
    const { mode } = await file.stat();
    // Windows has no such modes.
    if (process.platform !== "win32" && (mode & 0o077) !== 0) wrong(`${path} may be read by others: chmod 600 ${path}`);
    return new Key(await file.readFile("utf8"));
  } finally {
    await file.close();
  }
}

/** A file's text, which has its bytes' hash: not one that is no UTF-8. */
async function textOf(path) {
  const bytes = await readFile(path);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return wrong(`${path} is no text in UTF-8`);
  }
}

/** An answer with its whole text, within the time limit. */
async function exchange(request, init) {
  try {
    const answer = await fetch(request, { signal: AbortSignal.timeout(TIMEOUT), ...init });
    return { answer, text: await answer.text() };
  } catch (cause) {
    const reason = cause.cause?.message || cause.message;
    throw new RegistryError(`${request.url ?? request} cannot be reached: ${reason}`, "UNREACHABLE", 503, cause);
  }
}

const unreadable = (url) => new RegistryError(`${url} answers something that is no document`, "UNREACHABLE", 502);

/** The document of a good answer, or the error that a bad one carries. */
async function ask(url, init) {
  const { answer, text } = await exchange(url, { redirect: "error", ...init });
  let document;
  try {
    document = parse(text);
  } catch {
    // It is no JSON.
  }
  const isObject = typeof document === "object" && document !== null && !Array.isArray(document);
  if (answer.ok && isObject) return document;
  if (answer.ok) throw unreadable(url);
  const { error, code } = isObject ? document : {};
  throw new RegistryError(error ?? `${url} answers ${answer.status}`, code ?? "UNREACHABLE", answer.status);
}

/** The id of the agent that a wallet is registered as, by this creator and with these values: a record has no setters. */
async function registeredAs(registration, { relayer, api, rpc }) {
  const registry = api === undefined && (await ask(`${base(relayer)}/status`)).registry;
  const of = (path, read) => (api === undefined ? read(new Registry({ rpc, registry })) : ask(`${base(api)}/api/v1/${path}`));
  const { agentWallet: wallet } = registration;
  const { agent: found } = await of(`kya/${wallet}`, (chain) => chain.kya(wallet));
  if (!found) throw new RegistryError(`${wallet} is registered, which is not shown yet: repeat this in a minute`, "PENDING", 504);
  const { agent } = await of(`agent/${found.agentId}`, (chain) => chain.agent(found.agentId));
  // Addresses and hashes have two spellings, and the scope has its own alone.
  const text = (name, value) => (name === "operationalScope" ? value : String(value).toLowerCase());
  const other = Object.keys(registration).filter((name) => text(name, agent[name]) !== text(name, registration[name]));
  if (other.length > 0)
    throw new RegistryError(`${wallet} is agent ${found.agentId}, with other values: ${other.join(", ")}`, "CALL_REVERTED", 422);
  return found.agentId;
}

/** Signs a call of the registry, has it relayed, and waits until it is executed; the relayer's answer. */
async function relayed(url, key, data, { gas, least = 0 }) {
  const relayer = base(url);
  const apiKey = process.env.KYA_RELAYER_KEY?.trim() ?? "";
  // `fetch` would quote it in its error.
  if (!/^[!-~]*$/.test(apiKey)) wrong("KYA_RELAYER_KEY has a character that no header may have");
  const headers = apiKey === "" ? {} : { authorization: `Bearer ${apiKey}` };
  const [{ chainId, verifyingContract: forwarder }, { registry, limits }, { next: nonce }] = await Promise.all(
    ["domain", "status", `nonce/${key.address}`].map((path) => ask(`${relayer}/${path}`, { headers })),
  );
  const most = Number(limits.maxRequestGas);
  if (least > most) throw new RegistryError(`The scope is too long for ${relayer}: shorten it`, "GAS_ABOVE_MAXIMUM", 400);
  const deadline = Math.floor(Date.now() / 1_000) + VALID;
  const request = { from: key.address, to: registry, value: 0, gas: Math.min(gas, most), nonce: String(nonce), deadline, data };
  const rules = { chainId, forwarder, registry };
  const signed = { request, signature: key.signRequest(request, rules) };
  const id = checkRequest(signed, rules);
  const init = {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: JSON.stringify(signed),
  };
  let isTaken = false;
  for (const began = Date.now(); ; await new Promise((resume) => setTimeout(resume, PAUSE))) {
    const late = Date.now() - began > PATIENCE && `. Not settled: GET ${relayer}/relay/${id}`;
    try {
      const answer = await ask(...(isTaken ? [`${relayer}/relay/${id}`, { headers }] : [`${relayer}/relay`, init]));
      const { state = answer.txHash === undefined ? "pending" : "executed", error } = answer;
      if (state === "executed") return answer;
      if (state !== "pending") throw new RegistryError(`The relay is ${state}: ${error}`, "RELAY_FAILED", 502);
      if (late) throw new RegistryError(`Still pending${late}`, "PENDING", 504);
      isTaken = true;
    } catch (error) {
      // A request whose answer was lost may have been taken: it is asked for, and sent again where it was not.
      const { code, status } = error;
      const isElsewhere = isTaken ? status === 404 : code === "ALREADY_RELAYED";
      const passes = !FINAL.has(code) && (status === 408 || status === 429 || status >= 500);
      if (!isElsewhere && !passes) throw error;
      if (late) throw new RegistryError(`${error.message}${late}`, code, status, error);
      isTaken = isElsewhere ? !isTaken : code === "UNREACHABLE";
    }
  }
}

async function main([name, ...words]) {
  const command = Object.hasOwn(COMMANDS, name ?? "")
    ? COMMANDS[name]
    : wrong(name === undefined ? "which command?" : `no command ${name}`);
  const { takes, needs = [], options = {}, run } = command;
  const known = Object.entries({ ...Object.fromEntries(needs.map((name) => [name, {}])), ...options });
  let parsed;
  try {
    parsed = parseArgs({
      args: words,
      options: Object.fromEntries(known.map(([name, option]) => [name, { type: "string", ...option }])),
      allowPositionals: true,
    });
  } catch ({ message }) {
    wrong(message);
  }
  const { values, positionals } = parsed;
  if (positionals.length !== (takes === undefined ? 0 : 1))
    wrong(takes === undefined ? `${name} takes options alone` : `${name} takes ${takes}`);
  const missing = needs.filter((option) => values[option] === undefined);
  if (missing.length > 0) wrong(`${name} needs ${missing.map((option) => `--${option}`).join(", ")}`);
  for (const [option, value] of Object.entries({ ...values, ...(takes && { [takes]: positionals[0] }) })) {
    const [fits, form] = FORMS[option] ?? [];
    if (fits?.(value) === false) wrong(`${option === takes ? name : `--${option}`} takes ${form}`);
  }
  await Promise.all([init(), initKey({ module_or_path: await readFile(new URL("./key_bg.wasm", import.meta.url)) })]);
  await run(values, ...positionals);
}

try {
  if (["help", "--help", "-h"].includes(process.argv[2])) console.log(USAGE);
  else await main(process.argv.slice(2));
} catch (error) {
  console.error(error instanceof Misuse ? `${error.message}\n\n${USAGE}` : `${error.code ?? "Error"}: ${error.message}`);
  process.exitCode = error instanceof Misuse ? 2 : 1;
}
