// Answers of gates, in a form in which all of them can be compared.

/** The headers that say something about the decision. */
const COMPARED = [
  "accept-signature",
  "cache-control",
  "content-type",
  "kya-agent-id",
  "kya-decision",
  "kya-liable",
  "kya-liable-basis",
  "kya-until",
  "kya-verdict",
  "kya-wallet",
  "www-authenticate",
];

const answer = (status, body, header) => ({
  status,
  body,
  reason: body ? JSON.parse(body).reason : null,
  headers: Object.fromEntries(COMPARED.map((name) => [name, header(name) ?? ""])),
});

/** Of the daemon, over HTTP. */
export const ofDaemon = (status, headers, body) => answer(status, body, (name) => headers[name]);

/** Of the package's gates. Those of admissions have no content. */
export async function ofGate({ admitted, headers, response }) {
  if (!admitted) return answer(response.status, await response.text(), (name) => response.headers.get(name));
  return answer(200, "", (name) => (name === "cache-control" ? "no-store" : headers[name]));
}

/** A gate that was made a second ago: what is signed in the second of its start is refused. */
export function begun(make) {
  const { now } = Date;
  Date.now = () => now() - 1_000;
  try {
    return make();
  } finally {
    Date.now = now;
  }
}

/** The answer about a case: of the last of its requests. */
export async function answerTo(gate, requests, { asRequest } = {}) {
  let last;
  for (const { method, target, lines, content, origin } of requests) {
    const body = content.length > 0 ? content : undefined;
    last = asRequest
      ? await gate.admit(new Request(origin + target, { method, headers: lines, body }))
      : await gate.ask(method, target, lines, content);
  }
  return ofGate(last);
}
