// The Worker of this folder in two instances of workerd's, which share the objects of nonces and no memory.

import { join } from "node:path";
import { Log, LogLevel, Miniflare, convertV4MiniflareOptions } from "miniflare";
import { commonDirectory, modulesOf } from "../workerd/modules.mjs";

/** Starts them: `ask(instance, question)` has the Worker's answer, `stop()` ends them. */
export async function workers({ settings, adapter }) {
  const modules = modulesOf(join(import.meta.dirname, "worker.mjs"));
  const worker = (name, objects) => ({
    name,
    compatibilityDate: "2026-10-01",
    modules,
    modulesRoot: commonDirectory(modules.map(({ path }) => path)),
    bindings: { SETTING: JSON.stringify({ settings, adapter }) },
    durableObjects: { NONCES: { className: "NonceObject", useSQLite: true, ...objects } },
    unsafeDirectSockets: [{ host: "127.0.0.1", port: 0 }],
  });
  const names = ["first", "second"];
  const miniflare = new Miniflare(
    convertV4MiniflareOptions({
      cf: false,
      log: new Log(LogLevel.ERROR),
      workers: [worker("first"), worker("second", { scriptName: "first" })],
    }),
  );
  await miniflare.ready;
  const urls = await Promise.all(names.map((name) => miniflare.unsafeGetDirectURL(name)));
  return {
    async ask(instance, { requests, ...question }) {
      const told = requests.map(({ content, ...request }) => ({ ...request, content: [...content] }));
      const body = JSON.stringify({ ...question, requests: told });
      const answer = await fetch(urls[instance], { method: "POST", body });
      if (!answer.ok) throw new Error(await answer.text());
      return answer.json();
    },
    stop: () => miniflare.dispose(),
  };
}
