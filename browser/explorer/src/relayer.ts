/** The relayer's HTTP interface (`relayer-daemon/README.md`). */

import { exchange } from "./api";
import type { Address, Integer } from "./documents";

export interface Domain {
  name: string;
  version: string;
  chainId: Integer;
  verifyingContract: Address;
}

/** What became of a relay. */
export interface Relay {
  id: string;
  /** Only `pending` goes on; a relay executed within the relayer's patience comes without a state. */
  state?: "pending" | "executed" | "reverted" | "dropped";
  txHash?: string;
  agentId?: Integer;
  error?: string;
  code?: string;
}

export class Relayer {
  constructor(
    private readonly url: string,
    private readonly signal: AbortSignal,
  ) {}

  async domain(): Promise<Domain> {
    return (await this.get("/domain")) as unknown as Domain;
  }

  /** The registry it relays to, and the most gas a request may ask for. */
  async terms(): Promise<{ registry: Address; maxGas: Integer }> {
    const { registry, limits } = (await this.get("/status")) as {
      registry: Address;
      limits: { maxRequestGas: Integer };
    };
    return { registry, maxGas: limits.maxRequestGas };
  }

  /** The nonce to sign with. */
  async nextNonce(address: Address): Promise<Integer> {
    return (await this.get(`/nonce/${address}`))["next"] as Integer;
  }

  async relay(signed: unknown): Promise<Relay> {
    const body = JSON.stringify(signed);
    const { document } = await exchange(`${this.url}/relay`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body,
      signal: this.signal,
    });
    return document as unknown as Relay;
  }

  async state(id: string): Promise<Relay> {
    return (await this.get(`/relay/${id}`)) as unknown as Relay;
  }

  private async get(path: string): Promise<Record<string, unknown>> {
    return (await exchange(this.url + path, { signal: this.signal })).document;
  }
}
