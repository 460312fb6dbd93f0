// What both peers share: the registry's reads with viem, and the documents made of them. Each question is one `eth_call`.

import {
  BaseError,
  createPublicClient,
  ContractFunctionRevertedError,
  getAddress,
  http,
  isAddress,
  parseAbi,
} from "viem";

const abi = parseAbi([
  "struct AgentRecord { uint256 agentId; address creator; address haftungsperson; address agentWallet; bytes32 constitutionHash; bytes32 capabilityHash; string operationalScope; uint256 parentAgentId; uint256 generation; bool selfModifying; uint64 registeredAt; uint64 lastAttestation; uint64 lastRevenueReport; uint8 status; }",
  "function getAgent(uint256 agentId) view returns (AgentRecord)",
  "function getAgentByWallet(address wallet) view returns (AgentRecord)",
  "function getChildren(uint256 agentId) view returns (uint256[])",
  "function attestationGracePeriod() view returns (uint256)",
]);

const MULTICALL3 = "0xcA11bde05977b3631167028862bE2a173976CA11";
const STATUS = ["Active", "Suspended", "Revoked", "Terminated"];

/** An answer that is no 200. */
export class HttpError extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }

  get body() {
    return { error: this.message, code: this.code };
  }
}

/** Any error as one that clients may see: what a node says may quote its URL. */
export const visible = (error) =>
  error instanceof HttpError ? error : new HttpError(500, "RPC_UNAVAILABLE", "the RPC endpoint gave no answer");

/** The reads of one registry. */
export class Registry {
  constructor({ RPC_URL, REGISTRY_ADDRESS }) {
    this.address = getAddress(REGISTRY_ADDRESS);
    this.client = createPublicClient({ transport: http(RPC_URL, { retryCount: 0 }) });
  }

  /** `/api/v1/kya/:wallet`. */
  async kya(text) {
    if (!isAddress(text)) throw new HttpError(400, "INVALID_PARAMETER", "wallet must be an Ethereum address");
    const wallet = getAddress(text);
    const [found, grace] = await this.#read(["getAgentByWallet", [wallet]], ["attestationGracePeriod", []]);
    const record = registered(found);
    const now = Date.now();
    const standing = record && compliance(record, 0, result(grace), now);
    const compliant = standing !== null && isCompliant(standing);
    return {
      wallet,
      isRegistered: record !== null,
      isCompliant: compliant,
      agent: record && {
        agentId: Number(record.agentId),
        creator: record.creator,
        haftungsperson: record.haftungsperson,
        agentWallet: record.agentWallet,
        operationalScope: record.operationalScope,
        status: STATUS[record.status],
        registeredAt: time(record.registeredAt),
        lastAttestation: time(record.lastAttestation),
      },
      ...(record && { liability: liability(record) }),
      checkedAt: new Date(now).toISOString(),
      decision: record === null ? "deny" : compliant ? "provision" : "request_renewal",
      reasons: reasons(standing),
      compliantUntil: compliant ? time(record.lastAttestation + result(grace)) : null,
    };
  }

  /** `/api/v1/agent/:id`. */
  async agent(text) {
    if (!/^\d{1,78}$/.test(text)) throw new HttpError(400, "INVALID_PARAMETER", "id must be a whole number");
    const id = BigInt(text);
    const [found, children, grace] = await this.#read(
      ["getAgent", [id]],
      ["getChildren", [id]],
      ["attestationGracePeriod", []],
    );
    const record = registered(found);
    if (record === null) throw new HttpError(404, "AGENT_NOT_FOUND", `Agent not found: ${id}`);
    const ids = result(children).map(Number);
    return {
      agent: {
        agentId: Number(record.agentId),
        creator: record.creator,
        haftungsperson: record.haftungsperson,
        agentWallet: record.agentWallet,
        constitutionHash: record.constitutionHash,
        capabilityHash: record.capabilityHash,
        operationalScope: record.operationalScope,
        parentAgentId: Number(record.parentAgentId),
        generation: Number(record.generation),
        selfModifying: record.selfModifying,
        registeredAt: time(record.registeredAt),
        lastAttestation: time(record.lastAttestation),
        lastRevenueReport: time(record.lastRevenueReport),
        status: STATUS[record.status],
      },
      children: ids,
      liability: liability(record),
      compliance: compliance(record, ids.length, result(grace), Date.now()),
    };
  }

  #read(...calls) {
    return this.client.multicall({
      multicallAddress: MULTICALL3,
      contracts: calls.map(([functionName, args]) => ({ abi, address: this.address, functionName, args })),
    });
  }
}

/** What ties the liable wallet to the agent, and the agent to its parent, as far as its record says. */
function liability({ creator, haftungsperson, parentAgentId }) {
  const basis = creator === haftungsperson ? "registered" : "unknown";
  return { wallet: haftungsperson, basis, ...(parentAgentId > 0n && { parentBasis: "unknown" }) };
}

/** What a call returned; an error where it failed. */
function result(call) {
  if (call.status === "failure") throw call.error;
  return call.result;
}

/** The record, or `null` where the registry says that there is none. */
function registered(call) {
  const reverted =
    call.error instanceof BaseError && call.error.walk((error) => error instanceof ContractFunctionRevertedError);
  const none = ["Agent not found", "No agent registered for this wallet"];
  return reverted && none.includes(reverted.reason) ? null : result(call);
}

function compliance(record, childCount, graceSeconds, now) {
  const age = Math.max(0, Math.floor(now / 1000) - Number(record.lastAttestation));
  return {
    isActive: STATUS[record.status] === "Active",
    attestationCurrent: BigInt(age) <= graceSeconds,
    secondsSinceAttestation: age,
    childCount,
    status: STATUS[record.status],
  };
}

/** Why a wallet may not be served; `null` is one without an agent. */
function reasons(standing) {
  if (standing === null) return ["NOT_REGISTERED"];
  const { status, attestationCurrent } = standing;
  return [status === "Active" ? [] : status.toUpperCase(), attestationCurrent ? [] : "ATTESTATION_EXPIRED"].flat();
}

const isCompliant = ({ isActive, attestationCurrent }) => isActive && attestationCurrent;

const time = (seconds) => new Date(Number(seconds) * 1000).toISOString();
