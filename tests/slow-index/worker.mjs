// Stands in for the Worker that keeps the index, where a test needs an object that is slow or silent: it answers questions for
// an excerpt or a document after the milliseconds that it was told last, in the version of the protocol that it was told, or else
// that of the question. Of documents it has histories alone. Its progress it tells at once. The registry it knows has so many
// agents, none of which had a wallet before, and no ancestors.
import { DurableObject } from "cloudflare:workers";

const SILENT = 60_000;
const VERSION = "X-Index-Protocol";
const HEAD = { etag: 'W/"1"', links: null, read_at: 0, block: 1, rpc_calls: 0 };
const COUNTERS = { unannouncedChanges: 0, refreshesWithoutEvents: 0, comparisons: 0, sweptAgents: 500 };
const PROGRESS = { percent: 100, total: 0, basis: "events", isComparing: false, ...COUNTERS };
let [millis, agents, asked, refreshes, version] = [0, 0, 0, 0, null];

export class RegistryIndex extends DurableObject {
  async fetch(request) {
    const headers = { [VERSION]: version ?? request.headers.get(VERSION) };
    const { question } = await request.json();
    const isHistory = question.Document?.route.includes("/history");
    const progress = { Progress: [PROGRESS, null, { read: 0, written: 0, since: 0 }] };
    if (question === "Progress") return Response.json(progress, { headers });
    asked += question.Excerpt ? 1 : 0;
    refreshes += question.Excerpt?.refresh ? 1 : 0;
    if (question.Excerpt || question.Document) await scheduler.wait(millis);
    if (isHistory) return new Response("{}", { headers: { ...headers, "X-Document-Head": JSON.stringify(HEAD) } });
    if (!question.Excerpt) return Response.json("NotCovered", { headers });
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
    const before = query.has("refreshes") ? refreshes : asked;
    [asked, refreshes] = [0, 0];
    return new Response(String(before));
  },
};
