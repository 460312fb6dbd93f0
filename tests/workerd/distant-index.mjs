// Stands between a Worker and the object that keeps its index: hands on every question after some milliseconds, as from far away, and
// counts those that are answered, by kind. GET / is the counts.
import { DurableObject } from "cloudflare:workers";

const counts = {};

export class RegistryIndex extends DurableObject {
  async fetch(request) {
    const body = await request.text();
    const { object, question } = JSON.parse(body);
    const kind = typeof question === "string" ? question : Object.keys(question)[0];
    await scheduler.wait(Number(this.env.MILLIS));
    const { url, headers } = request;
    const answer = await this.env.INDEX.getByName(object).fetch(url, { method: "POST", headers, body });
    counts[kind] = (counts[kind] ?? 0) + 1;
    return answer;
  }
}

export default {
  fetch: () => Response.json(counts),
};
