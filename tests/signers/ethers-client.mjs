// An agent's client written with ethers alone: asks the relayer for its domain and the nonce, signs with ethers'
// own typed-data function, posts, and prints the relayer's answer.
//
// node ethers-client.mjs RELAYER_URL PRIVATE_KEY REGISTRY CALLDATA GAS

import { Wallet } from "ethers";

const [relayer, key, registry, data, gas] = process.argv.slice(2);
const ask = async (path, init) => (await fetch(`${relayer}${path}`, init)).json();

const types = {
  ForwardRequest: [
    { name: "from", type: "address" },
    { name: "to", type: "address" },
    { name: "value", type: "uint256" },
    { name: "gas", type: "uint256" },
    { name: "nonce", type: "uint256" },
    { name: "deadline", type: "uint48" },
    { name: "data", type: "bytes" },
  ],
};

const wallet = new Wallet(key);
const domain = await ask("/domain");
const { next } = await ask(`/nonce/${wallet.address}`);
const request = {
  from: wallet.address,
  to: registry,
  value: 0n,
  gas: BigInt(gas),
  nonce: BigInt(next),
  deadline: Math.floor(Date.now() / 1000) + 600,
  data,
};
const signature = await wallet.signTypedData(domain, types, request);
// JSON knows no BigInt: decimal strings, as everybody does it.
const body = JSON.stringify({ request, signature }, (_, value) => (typeof value === "bigint" ? value.toString() : value));
const headers = { "content-type": "application/json" };
console.log(JSON.stringify(await ask("/relay", { method: "POST", headers, body })));
