// Stands in for the Worker that keeps the index, where a test needs an object that is slow or silent: it answers questions for
// an excerpt after the milliseconds that it was told last, in the version of the protocol that it was told, or else that of the
// question. The registry it knows has so many agents, none of which had a wallet before, and no ancestors.
import { DurableObject } from "cloudflare:workers";

const SILENT = 60_000;
const VERSION = "X-Index-Protocol";
let [millis, agents, asked, version] = [0, 0, 0, null];

export class RegistryIndex extends DurableObject {
  async fetch(request) {
    const headers = { [VERSION]: version ?? request.headers.get(VERSION) };
    const { question } = await request.json();
    if (!question.Excerpt) return Response.json("NotCovered", { headers });
    asked += 1;
    await scheduler.wait(millis);
    // No events were listed.
    return Response.json({ Excerpt: "01" + agents.toString(16).padStart(16, "0") + "f".repeat(16) }, { headers });
  }
}

export default {
  fetch(request) {
    const query = new URL(request.url).searchParams;
    millis = Number(query.get("millis") ?? SILENT);
    agents = Number(query.get("agents"));
    version = query.get("version");
    const before = asked;
    asked = 0;
    return new Response(String(before));
  },
};
