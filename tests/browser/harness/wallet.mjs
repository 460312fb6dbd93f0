// A wallet as a page meets it: an EIP-1193 provider in `window.ethereum`, or one announced by EIP-6963.
//
// The page's end only passes messages. The key is here, in a fresh account without ETH; signing is ethers', and
// all other requests go to the chain's node, as in every wallet.

import { Wallet, getBytes } from "ethers";

/** EIP-1193's error for what the user does not want. */
const REJECTED = 4001;

export class BrowserWallet {
  #rpc;
  #key;

  /** @param {string} rpc the chain's node */
  constructor(rpc) {
    this.#rpc = rpc;
    this.renew();
  }

  /** Becomes another user's: with a new key, and as it was at first. */
  renew() {
    this.#key = Wallet.createRandom();
    /** Methods that the user says no to. */
    this.rejects = new Set();
    /** The chain it says it is on; `null` is the node's. */
    this.chainId = null;
    /** The methods it was asked for, in their order. */
    this.asked = [];
  }

  /** The one account, with its checksum. */
  get address() {
    return this.#key.address;
  }

  /**
   * Puts it into every page of a context, before the page's own scripts.
   *
   * @param {import("playwright-core").BrowserContext} context
   * @param {"window.ethereum" | "EIP-6963"} where
   */
  async install(context, where) {
    await context.exposeBinding("__walletRequest", (_source, call) => this.#answer(call));
    await context.addInitScript(provide, where);
  }

  /** EIP-1193's outcome as a value: errors keep their code only if they are no exceptions on the way. */
  async #answer({ method, params = [] }) {
    this.asked.push(method);
    if (this.rejects.has(method)) return { error: { code: REJECTED, message: "User rejected the request." } };
    switch (method) {
      case "eth_requestAccounts":
      case "eth_accounts":
        return { result: [this.address] };
      case "eth_chainId":
        return this.chainId === null ? this.#forward(method, params) : { result: `0x${this.chainId.toString(16)}` };
      case "eth_signTypedData_v4":
        return this.#sign(...params);
      case "personal_sign":
        return this.#signMessage(...params);
      default:
        return this.#forward(method, params);
    }
  }

  async #sign(account, text) {
    if (account.toLowerCase() !== this.address.toLowerCase()) {
      return { error: { code: 4100, message: "The account is not this wallet's." } };
    }
    const { domain, types: { EIP712Domain: _own, ...types }, message } = JSON.parse(text);
    return { result: await this.#key.signTypedData(domain, types, message) };
  }

  async #signMessage(message, account) {
    if (account.toLowerCase() !== this.address.toLowerCase()) {
      return { error: { code: 4100, message: "The account is not this wallet's." } };
    }
    return { result: await this.#key.signMessage(getBytes(message)) };
  }

  async #forward(method, params) {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    const headers = { "content-type": "application/json" };
    const { result, error } = await (await fetch(this.#rpc, { method: "POST", headers, body })).json();
    return error ? { error } : { result };
  }
}

/** Runs in the page. */
function provide(where) {
  const provider = {
    async request(call) {
      const { result, error } = await window.__walletRequest(call);
      if (!error) return result;
      throw Object.assign(new Error(error.message), { code: error.code, data: error.data });
    },
    on() {},
    removeListener() {},
  };
  if (where === "window.ethereum") {
    window.ethereum = provider;
    return;
  }
  const info = {
    uuid: "6c9f1f5e-6f0f-4c6e-9a59-1d7e7f6f0a11",
    name: "Test wallet",
    icon: "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'/>",
    rdns: "test.wallet",
  };
  const announce = () => {
    const detail = Object.freeze({ info, provider });
    window.dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail }));
  };
  window.addEventListener("eip6963:requestProvider", announce);
  announce();
}
