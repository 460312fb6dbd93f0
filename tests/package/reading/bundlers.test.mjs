// The package where its users run it.
//
// 1. In a Worker every entry starts by itself, and reaches chain and API.
// 2. In a page that a bundler makes, as the package's README says of each; otherwise the error says where to look, of every entry.
// 3. publint and are-the-types-wrong object to nothing but that it has ES modules alone.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { copyFile, cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { build } from "esbuild";
import { Miniflare, convertV4MiniflareOptions } from "miniflare";

import { sharedBrowser } from "../../browser/harness/chromium.mjs";
import { test } from "../../browser/harness/declared.mjs";
import { commonDirectory, modulesOf } from "../../workerd/modules.mjs";
import { PACKAGE, packed } from "../installed.mjs";
import { OPTIONS, serving, stack } from "../setting.mjs";

const CLIENTS = fileURLToPath(new URL("../../clients/", import.meta.url));
const { wallet } = stack.agents.kyoto;

/** Runs `body` with the folder of a project that has the package installed. */
async function inAProject(files, body) {
  const root = await mkdtemp(join(CLIENTS, "node_modules/.project-"));
  try {
    await cp(PACKAGE, join(root, "node_modules/agent-registry"), { recursive: true });
    for (const [name, text] of Object.entries(files)) {
      await mkdir(dirname(join(root, name)), { recursive: true });
      await writeFile(join(root, name), text);
    }
    return await body(root);
  } finally {
    await rm(root, { recursive: true });
  }
}

const WORKER = `
  import init, { Registry } from "agent-registry";
  import initEvidence, { verifyEvidence } from "agent-registry/evidence";
  import initLiability, { checkAcceptance } from "agent-registry/liability";
  import initLocal, { LocalKya, kyaPrivately } from "agent-registry/local";
  await Promise.all([init(), initEvidence(), initLiability(), initLocal()]);
  export default {
    async fetch(request) {
      const { options, api, wallet } = await request.json();
      const local = new LocalKya({ api });
      await local.update();
      const proof = await (await fetch(api + "/api/v1/evidence/" + wallet)).text();
      const proved = verifyEvidence(proof, { blockHash: JSON.parse(proof).blockHash });
      const { verdict } = await kyaPrivately(wallet, { api });
      const own = await new Registry(options).kya(wallet);
      const { problem } = checkAcceptance("", own.agent, { chainId: 1, registry: own.agent.creator });
      return Response.json([own, await local.kya(wallet), verdict, proved.verdict].map(({ decision }) => decision).concat(problem));
    },
  };`;

test("in a Worker each entry starts by itself and reaches chain and API", () =>
  inAProject({ "worker.js": WORKER }, async (root) => {
    const bundle = { bundle: true, format: "esm", target: "es2022", conditions: ["workerd", "worker", "browser"] };
    await build({ ...bundle, absWorkingDir: root, entryPoints: ["worker.js"], outdir: "out", loader: { ".wasm": "copy" } });
    const modules = modulesOf(join(root, "out/worker.js"));
    const modulesRoot = commonDirectory(modules.map(({ path }) => path));
    const worker = { name: "user", compatibilityDate: "2026-10-01", modules, modulesRoot };
    const miniflare = new Miniflare(convertV4MiniflareOptions({ cf: false, workers: [worker] }));
    try {
      const question = { options: OPTIONS, api: stack.snapshots, wallet };
      const answer = await miniflare.dispatchFetch("http://user/", { method: "POST", body: JSON.stringify(question) });
      assert.equal(await answer.text(), JSON.stringify([...Array(4).fill("provision"), "header"]));
    } finally {
      await miniflare.dispose();
    }
  }));

const PAGE = `<!doctype html><link rel="icon" href="data:,"><script type="module" src="./main.js"></script>`;
const asked = (init, more = "") => `
  import init, { Registry } from "agent-registry";
  ${more}
  (async () => {
    await ${init};
    const { decision } = await new Registry(${JSON.stringify(OPTIONS)}).kya("${wallet}");
    return decision;
  })().catch(({ code, message }) => code ?? message).then((found) => (document.title = found));`;
const FILES = {
  "index.html": PAGE,
  "main.js": asked("init()"),
  "imported.js": asked("init({ module_or_path: wasm })", 'import wasm from "agent-registry/registry_bg.wasm";'),
  "copied.js": asked('init({ module_or_path: "registry_bg.wasm" })'),
  // Next's. Its compiler takes no JSX under `node_modules`.
  "next.config.mjs": `export default { serverExternalPackages: ["agent-registry"], turbopack: { root: ${JSON.stringify(CLIENTS)} } };`,
  "verdict.js": `
    import init, { Registry } from "agent-registry";
    export default async () => {
      await init();
      return (await new Registry(${JSON.stringify(OPTIONS)}).kya("${wallet}")).decision;
    };`,
  "app/layout.js": `
    import { createElement } from "react";
    export default ({ children }) => createElement("html", null, createElement("body", null, children));`,
  "app/page.js": `
    import { createElement } from "react";
    import verdict from "../verdict.js";
    import Own from "./own.js";
    export const dynamic = "force-dynamic";
    export default async () => createElement(Own, { served: await verdict() });`,
  "app/own.js": `
    "use client";
    import { useEffect } from "react";
    import verdict from "../verdict.js";
    export default function Own({ served }) {
      useEffect(() => {
        verdict().catch(({ code, message }) => code ?? message).then((own) => (document.title = served + ", " + own));
      }, [served]);
    }`,
};
const TYPES = { html: "text/html", js: "text/javascript", wasm: "application/wasm" };

/** Serves a folder, with the page, and the wasm for the one that looks for a copy of it. */
async function serve(folder, body) {
  if (!(await readFile(join(folder, "index.html")).catch(() => undefined))) await writeFile(join(folder, "index.html"), PAGE);
  const files = async (request, response) => {
    const content = await readFile(join(folder, request.url.split("?")[0])).catch(() => undefined);
    response.writeHead(content ? 200 : 404, { "content-type": TYPES[request.url.split(".").at(-1)] ?? "text/plain" });
    response.end(content);
  };
  return serving(files, body);
}

test("in a page each bundler needs what the README says of it, and without it the error says so", async () => {
  const { BUNDLERS } = await import("../../clients/bundlers.mjs");
  const context = await (await sharedBrowser()).newContext();
  const found = [];
  try {
    for (const [name, start, expected] of BUNDLERS) {
      await inAProject(FILES, (root) => {
        const look = async (url) => {
          const page = await context.newPage();
          await page.goto(url);
          await page.waitForFunction(() => document.title !== "", undefined, { timeout: 30_000 });
          found.push([name, await page.title(), expected]);
          await page.close();
        };
        const copied = async (folder, body) => {
          await mkdir(folder, { recursive: true });
          if (name === "Rollup") await copyFile(join(PACKAGE, "registry_bg.wasm"), join(folder, "registry_bg.wasm"));
          return serve(folder, body);
        };
        return start(root, look, copied);
      });
    }
  } finally {
    await context.close();
  }
  assert.deepEqual(found.map(([name, title]) => [name, title]), found.map(([name, , expected]) => [name, expected]));
});

const ENTRIES = ["", "/evidence", "/gate", "/liability", "/local"];
const EVERY_ENTRY = `
  ${ENTRIES.map((entry, at) => `import init${at} from "agent-registry${entry}";`).join("\n")}
  const started = (init) => init().then(() => "started", ({ code, message }) => code ?? message);
  Promise.all([${ENTRIES.map((_, at) => `init${at}`)}].map(started)).then((found) => console.log(JSON.stringify(found)));`;

test("of every entry the error says where to look for a wasm that a bundler has left behind", () =>
  inAProject({ "all.js": EVERY_ENTRY }, async (root) => {
    for (const [platform, format, extension] of [
      ["node", "esm", "mjs"],
      ["node", "cjs", "cjs"],
      ["browser", "esm", "mjs"],
    ]) {
      const outfile = join(root, `${platform}.${extension}`);
      // Of `import.meta`, which CommonJS has not, it would warn.
      const how = { bundle: true, target: "es2022", logLevel: "error" };
      await build({ ...how, absWorkingDir: root, entryPoints: ["all.js"], platform, format, outfile });
      const { stdout } = await promisify(execFile)(process.execPath, [outfile]);
      assert.deepEqual(JSON.parse(stdout), ENTRIES.map(() => "NOT_LOADED"), `${platform} ${format}`);
    }
  }));

test("publint and are-the-types-wrong object to nothing but that it has ES modules alone", async () => {
  const { checkPackage, createPackageFromTarballData, publint } = await import("../../clients/bundlers.mjs");
  const { messages } = await publint({ pkgDir: PACKAGE, level: "warning", pack: false });
  assert.deepEqual(messages, []);
  await packed(async (_directory, { path }) => {
    const { problems } = await checkPackage(createPackageFromTarballData(new Uint8Array(await readFile(path))));
    // `require` of Node 22 takes them; the resolution of Node 10 knows no `exports`.
    const isOfModules = ({ kind, resolutionKind }) => kind === "CJSResolvesToESM" || (kind === "NoResolution" && resolutionKind === "node10");
    assert.deepEqual(problems.filter((problem) => !isOfModules(problem)), []);
  });
});
