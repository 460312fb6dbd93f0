// The package's command line, `npx agent-registry`.
//
// 1. From nothing to a request that the gate admits: a key, `register`, `attest`, `sign`, and `status` by the chain and by the API.
// 2. A request whose answer is lost or broken is asked for, with the API key that the relayer has given, and not made twice.
// 3. A service that answers no document, or breaks off, gives no verdict. An API key that cannot be sent is not told.
// 4. A key that others may read, a key that is none, and a command that is wrong are refused, and nothing of a key is told.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";

import { keccak256, toUtf8Bytes } from "ethers";

import { test } from "../../browser/harness/declared.mjs";
import { eventually } from "../../browser/harness/eventually.mjs";
import { PACKAGE, installed, run } from "../installed.mjs";
import { OPTIONS, Registry, serving, stack } from "../setting.mjs";

test("from nothing to admitted by npx, with a key that its owner alone may read", () =>
  installed(async (directory) => {
    const npx = async (...words) => {
      const env = { ...process.env, KYA_RELAYER_KEY: "rk_test" };
      const told = run("npx", ["--offline", "agent-registry", ...words], { cwd: directory, env });
      return told.then(
        ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
        ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
      );
    };
    const done = async (...words) => {
      const { code, stdout, stderr } = await npx(...words);
      assert.equal(code, 0, stdout + stderr);
      return JSON.parse(stdout);
    };
    const secret = randomBytes(32).toString("hex");
    await writeFile(join(directory, "agent.key"), `${secret}\n`, { mode: 0o600 });
    await writeFile(join(directory, "constitution.md"), "Tut, was verabredet ist.\n");
    await writeFile(join(directory, "capabilities.json"), '{"tools":["invoice"]}');
    const key = ["--key", "agent.key"];
    const relayer = ["--relayer", stack.relayer, ...key];
    const documents = ["--constitution", "constitution.md", "--capabilities", "capabilities.json"];
    const scope = "0xA signs from a shell — ページ";
    const register = ["register", ...relayer, ...documents, "--scope", scope];
    const sign = ["sign", `${stack.guarded}/orders?view=full`, ...key, "--chain", "31337", "--data", "two loaves"];
    const asText = ["--header", "content-type: text/plain"];

    const refused = await npx(...sign, ...asText, "--send");
    assert.equal(refused.code, 1);
    assert.match(refused.stdout, /kya_not_allowed/);

    const { agentId, wallet } = await done(...register);
    const { agent } = await new Registry(OPTIONS).agent(agentId);
    const hashes = ["Tut, was verabredet ist.\n", '{"tools":["invoice"]}'].map((text) => keccak256(toUtf8Bytes(text)));
    assert.deepEqual([agent.agentWallet, agent.haftungsperson, agent.operationalScope], [wallet, wallet, scope]);
    assert.deepEqual([agent.constitutionHash, agent.capabilityHash], hashes);
    const again = await npx(...register);
    assert.equal(again.code, 1, again.stdout);
    assert.match(again.stderr, /already registered/);
    for (const [none, ...place] of [
      ["0x0", "--rpc", stack.rpc],
      ["00", "--api", stack.worker],
    ]) {
      const repeated = await done(...register, "--parent", none, ...place);
      assert.deepEqual([repeated.agentId, repeated.wallet, repeated.already], [agentId, wallet, true]);
      for (const [change, name] of [
        [["--self-modifying"], "selfModifying"],
        [["--scope", scope.toLowerCase()], "operationalScope"],
      ]) {
        const changed = await npx(...register, ...change, ...place);
        assert.deepEqual([changed.code, changed.stdout], [1, ""]);
        assert.match(changed.stderr, new RegExp(`with other values: ${name}$`, "m"));
      }
    }

    await writeFile(join(directory, "other.key"), randomBytes(32).toString("hex"), { mode: 0o600 });
    const long = "Does what it is told. ".repeat(60);
    const { agentId: other } = await done(...register, "--key", "other.key", "--scope", long);
    assert.equal((await new Registry(OPTIONS).agent(other)).agent.operationalScope, long);

    assert.equal((await done("attest", String(agentId), ...relayer)).agentId, agentId);
    const verdict = await done("status", wallet, "--rpc", stack.rpc, "--registry", stack.registry);
    assert.deepEqual([verdict.decision, verdict.agent.agentId], ["provision", agentId]);
    assert.equal((await done("status", stack.agents.kyoto.wallet, "--api", `${stack.worker}/`)).decision, "provision");
    assert.equal((await npx("status", stack.agents.paused.wallet, "--api", stack.worker)).code, 3);
    // The gate keeps what it knew of the wallet for a while.
    await eventually(async () => {
      const { stdout } = await npx(...sign, ...asText, "--send");
      assert.match(stdout, new RegExp(`served ${wallet}.*: two loaves`, "i"));
    });
    const { stdout } = await npx(...sign, ...asText);
    const headers = [...stdout.trim().split("\n").map((line) => line.split(/: (.*)/).slice(0, 2))];
    const sent = await fetch(sign[1], { method: "POST", headers, body: "two loaves" });
    assert.equal(sent.status, 200, await sent.text());

    for (const lose of [
      (response) => response.destroy(),
      (response) => response.writeHead(502).end("null"),
      (response) => response.writeHead(200).end("null"),
    ]) {
      const losing = await losingAnswers(stack.relayer, lose);
      try {
        assert.equal((await done("attest", String(agentId), "--relayer", losing.url, ...key)).agentId, agentId);
      } finally {
        losing.server.close();
      }
      assert.deepEqual(new Set(losing.keys), new Set(["Bearer rk_test"]));
      assert.equal(losing.paths.filter((path) => path === "POST /relay").length, 1);
      assert.ok(losing.paths.some((path) => path.startsWith("GET /relay/0x")), losing.paths.join(" "));
    }

    for (const [words, code, message] of [
      [["sign", ...sign.slice(1), "--key", "open.key"], 2, /open\.key may be read by others: chmod 600 open\.key/],
      [["attest", "1", "--relayer", stack.relayer, "--key", "short.key"], 1, /Invalid key: must be a secp256k1 key/],
      [["attest", "1", "--relayer", stack.silentRpc, ...key], 1, /UNREACHABLE: .*cannot be reached/],
      [["attest", ...relayer], 2, /attest takes the agent's id/],
      [["attest", "1", ...key], 2, /attest needs --relayer/],
      [["attest", "1", ...relayer, "--private-key", secret], 2, /--private-key/],
      [["deploy"], 2, /no command deploy/],
      [["sign", "nourl", ...key, "--chain", "1"], 2, /sign takes a URL that begins with/],
      [["sign", sign[1], ...key, "--chain", "abc"], 2, /--chain takes a whole number/],
      [[...sign, "--method", "GET"], 2, /GET\/HEAD method cannot have body/],
      [["attest", "abc", ...relayer], 2, /attest takes a whole number/],
      [[...register, "--scope", "x".repeat(10_000)], 1, /GAS_ABOVE_MAXIMUM: The scope is too long for http/],
      [["attest", "1", ...key, "--relayer", "127.0.0.1"], 2, /--relayer takes a URL/],
      [[...register, "--parent", "x"], 2, /--parent takes a whole number/],
      [[...register, "--liable", wallet.slice(2)], 2, /--liable takes 0x and 40 hexadecimal digits/],
      [["status", "kyoto", "--api", stack.worker], 2, /status takes 0x and 40 hexadecimal digits/],
    ]) {
      await writeFile(join(directory, "open.key"), secret);
      await chmod(join(directory, "open.key"), 0o640);
      await writeFile(join(directory, "short.key"), secret.slice(1), { mode: 0o600 });
      const failed = await npx(...words);
      assert.deepEqual([failed.code, failed.stdout], [code, ""], failed.stderr);
      assert.match(failed.stderr, message);
      assert.ok(!failed.stderr.includes(secret.slice(1)), failed.stderr);
    }
  }));

test("a service that answers no document gives no verdict, and an API key that no header may have is not told", async () => {
  const answers = {
    "/html": (response) => response.end("<!doctype html>"),
    "/cut": (response) => response.writeHead(200, { "content-length": 99 }).write('{"decision":', () => response.destroy()),
    "/null": (response) => response.end("null"),
    "/other": (response) => response.end("{}"),
    "/refused": (response) => response.writeHead(502).end("null"),
  };
  const directory = await mkdtemp(join(tmpdir(), "npx-"));
  try {
    const key = join(directory, "agent.key");
    await writeFile(key, randomBytes(32).toString("hex"), { mode: 0o600 });
    const cli = (words, env) => run(process.execPath, [join(PACKAGE, "cli.js"), ...words], { env: { ...process.env, ...env } });
    const failed = (...words) =>
      cli(words).then(
        ({ stdout }) => assert.fail(`it succeeds: ${stdout}`),
        ({ code, stdout, stderr }) => {
          assert.deepEqual([code, stdout], [1, ""], stderr);
          assert.match(stderr, /^UNREACHABLE: http/);
        },
      );
    await serving((request, response) => answers[`/${request.url.split("/")[1]}`](response), async (url) => {
      for (const path of Object.keys(answers)) await failed("status", stack.agents.kyoto.wallet, "--api", url + path);
      await failed("sign", `${url}/cut`, "--key", key, "--chain", "1", "--send");
      for (const secret of ["rk_a\nrk_b", "rk_ä"]) {
        const words = ["attest", "1", "--relayer", `${url}/other`, "--key", key];
        const refused = await cli(words, { KYA_RELAYER_KEY: secret }).catch((error) => error);
        assert.deepEqual([refused.code, refused.stdout, /rk_/.test(refused.stderr)], [2, "", false], refused.stderr);
        assert.match(refused.stderr, /^KYA_RELAYER_KEY has a character/);
      }
    });
  } finally {
    await rm(directory, { recursive: true });
  }
});

/** A relayer whose answers to what is posted are lost on the way: `lose` gives others in their place. */
async function losingAnswers(relayer, lose) {
  const [paths, keys] = [[], []];
  const server = createServer(async (request, response) => {
    const { method, url } = request;
    paths.push(`${method} ${url}`);
    keys.push(request.headers.authorization);
    const body = method === "POST" ? await text(request) : undefined;
    const answer = await fetch(relayer + url, { method, body, headers: { "content-type": "application/json" } });
    if (method === "POST") lose(response);
    else response.writeHead(answer.status).end(await answer.text());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, paths, keys, url: `http://127.0.0.1:${server.address().port}` };
}
