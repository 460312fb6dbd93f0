// A Worker that asks the package's gates about requests that it is told of.

import init, { Gate, LocalGate, NonceObject, ObjectNonces } from "../../browser/pkg/gate-workerd.js";
import { answerTo } from "./answers.mjs";

export { NonceObject };

await init();
let gates;

export default {
  async fetch(message, { SETTING, NONCES }) {
    const { settings, adapter } = JSON.parse(SETTING);
    gates ??= { adapter: (policy) => new Gate({ url: adapter, policy }), local: locally(settings, NONCES) };
    const { gate, policy, requests, asRequest } = await message.json();
    const received = requests.map(({ content, ...request }) => ({ ...request, content: Uint8Array.from(content) }));
    return Response.json(await answerTo(gates[gate](policy), received, { asRequest }));
  },
};

function locally(settings, namespace) {
  const first = new LocalGate({ settings, policy: "api", nonces: new ObjectNonces(namespace) });
  return (policy) => first.under(policy);
}
