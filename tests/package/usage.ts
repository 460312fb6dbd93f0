// The package as TypeScript sees it: what has to compile, and what must not. `reading/types.test.mjs` has the compiler look.

import initEvidence, { type Evidence, verifyEvidence } from "../../browser/pkg/evidence.js";
import initGate, { Gate, LocalGate, MemoryNonces, type NonceStore, RedisNonces, forFetch } from "../../browser/pkg/gate.js";
import init, {
  type Agent,
  type Integer,
  type Kya,
  type Reason,
  Registry,
  RegistryError,
  attestCompliance,
  checkRequest,
  forwardRequest,
  initSync,
  keccak256,
  parse,
  registerAgent,
} from "../../browser/pkg/index.js";
import initLiability, {
  type Acceptance,
  type DomainFile,
  acceptanceHeader,
  checkAcceptance,
  fetchDomain,
  signAcceptance,
  signDomain,
} from "../../browser/pkg/liability.js";
import { FolderStore, IndexedDbStore, LocalKya, MemoryStore, type SpotCheck, kyaPrivately } from "../../browser/pkg/local.js";

declare const ethereum: { request(call: { method: string; params?: unknown[] }): Promise<unknown> };

export async function asking(): Promise<Agent | undefined> {
  await init();
  initSync({ module: new Uint8Array() });
  const registry = new Registry({ rpc: ethereum, registry: "0x", chainId: 1n, timeoutSeconds: 5, multicall3: "0x", fetch });
  new Registry({ rpc: "https://rpc.example", registry: "0x" });

  const kya: Kya = await registry.kya("0x");
  await registry.kya("0x", { history: 1 });
  await registry.kya("0x", { block: 7n });
  const reasons: Reason[] = kya.reasons;
  for (const item of (await registry.kyaList(["0x"], { block: 7 })).data) if ("code" in item) reasons.length = 0;
  await registry.ancestors(7);
  if (kya.agent !== null) {
    const id: Integer = kya.agent.agentId;
    const { agent, children, compliance } = await registry.agent(id);
    await registry.lineage(children[0] ?? "7");
    await registry.revenue(1n, { limit: 5 });
    return compliance.isActive ? agent : undefined;
  }
  await registry.agents();
  const page = await registry.agents({ status: "Active", page: 2 });
  const text: string = await registry.getText("/health");
  const document: unknown = [parse(text), await registry.get("/health")];
  registry.free();

  // @ts-expect-error: an id may be larger than a number holds
  const id: number = page.data[0].agentId;
  // @ts-expect-error: there is no such status
  await registry.agents({ status: "active" });
  // @ts-expect-error: a wallet is text
  await registry.kya(7);
  // @ts-expect-error: a registry has an address
  new Registry({ rpc: "https://rpc.example" });
  // @ts-expect-error: documents by path are of no known type
  const name: string = document.length + id;
  return undefined;
}

export async function relaying(from: string): Promise<string | number | undefined> {
  const rules = { chainId: 84532, forwarder: "0x", registry: "0x" };
  const hash = keccak256("text");
  const data = registerAgent({
    haftungsperson: from, agentWallet: from, constitutionHash: hash, capabilityHash: hash,
    operationalScope: "", parentAgentId: 0, selfModifying: false,
  });
  const request = { from, to: "0x", value: 0, gas: 5n, nonce: "0x1", deadline: 0, data };
  const typed = forwardRequest(request, rules);
  const { EIP712Domain: _own, ...types } = typed.types;
  const signature = String(await ethereum.request({
    method: "eth_signTypedData_v4", params: [from, JSON.stringify({ ...typed, types })],
  }));
  try {
    return checkRequest({ request, signature }, rules) + attestCompliance(7);
  } catch (error) {
    if (error instanceof RegistryError) {
      const { code, status, cause }: { code: string; status: number; cause?: unknown } = error;
      return cause === undefined ? code : status;
    }
  }
  // @ts-expect-error: a registration is whole
  registerAgent({ haftungsperson: from });
  // @ts-expect-error: there is nothing to check without a signature
  checkRequest({ request }, rules);
  return undefined;
}

export async function proving(document: Evidence, blockHash: string): Promise<Kya> {
  await initEvidence();
  verifyEvidence(JSON.stringify(document), { blockHash, chainId: 8453n, layout: document.layout });
  // @ts-expect-error: a document proves nothing by its own word
  verifyEvidence(document, {});
  const { verdict, block } = verifyEvidence(document, { blockHash });
  const hash: string = block.hash;
  return hash === blockHash ? verdict : document.verdict;
}

export async function locally(chain: Registry): Promise<Kya> {
  const stores = [new FolderStore("registry"), new IndexedDbStore(), new MemoryStore()];
  const local = new LocalKya({ api: "https://kya.example", chainId: 1, maxAgeSeconds: 30, store: stores[0], chain });
  const { shards, bytes }: { shards: number; bytes: number } = await local.update();
  const check: SpotCheck = await local.spotCheck("0x");
  if (!check.agrees) throw new Error(`${check.evidence ?? shards + bytes}`);
  local.run({ everySeconds: 10, report: (event) => void ("error" in event && event.error.code) })();
  const age: number | undefined = local.ageSeconds;
  const { verdict, sent } = await kyaPrivately("0x", { api: "https://kya.example" });
  // @ts-expect-error: an API has to be named
  new LocalKya({});
  return age === undefined || sent === "" ? verdict : local.kya("0x");
}

export async function gating(request: Request, settings: string): Promise<Response | string> {
  await initGate();
  const nonces: NonceStore = new RedisNonces({ sendCommand: async (words: string[]) => words }, { prefix: "a:" });
  const gate = new LocalGate({ settings, policy: "api", nonces, rpc: "https://rpc.example", report: console.warn });
  gate.under("orders");
  new MemoryNonces().spend("key", 0, 1);
  const result = await gate.admit(request);
  if (!result.admitted) return result.response;
  const wallet: string | null = result.agent.wallet;
  const guarded = await forFetch(new Gate({ url: "http://127.0.0.1:4180", policy: "api" }))(result.request);
  // @ts-expect-error: settings are needed
  new LocalGate({ policy: "api" });
  return guarded instanceof Response ? guarded : (wallet ?? guarded.headers["kya-wallet"] ?? "");
}

export async function liable(agent: NonNullable<Kya["agent"]>, sign: () => Promise<string>): Promise<string | undefined> {
  await initLiability();
  const place = { chainId: 1n, registry: "0x" };
  const acceptance: Acceptance = await signAcceptance(agent, { ...place, days: 7, termsHash: "0x" }, sign);
  const { problem, digest } = checkAcceptance(acceptanceHeader(acceptance), agent, place);
  // @ts-expect-error: what cannot be read has no digest.
  digest.slice(2);
  const { legalName }: DomainFile["wallets"][0] = { ...(await signDomain("0x", "acme.example", place, sign)), legalName: "Acme" };
  // @ts-expect-error: the registry has to be given.
  await fetchDomain("acme.example", { chainId: 1 });
  return problem ?? legalName ?? (await fetchDomain("acme.example", { ...place, fetch })).wallets[0]?.problem;
}
