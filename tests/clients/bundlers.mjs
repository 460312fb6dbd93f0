// A page by the bundlers that others use. Each is given the folder of a project, and gives an address of the page while `body` runs.

import { join } from "node:path";

import { build } from "esbuild";
import { rollup } from "rollup";

export { publint } from "publint";

const options = (root) => ({ root, configFile: false, logLevel: "silent", clearScreen: false });

/** The development server of a version of Vite, as the package's README sets it up. */
async function vite(version, root, body) {
  const { createServer } = await import(version);
  const cacheDir = join(root, "node_modules", `.${version}`);
  const server = await createServer({
    ...options(root),
    cacheDir,
    optimizeDeps: version === "vite8" ? {} : { exclude: ["agent-registry"] },
    server: { host: "127.0.0.1", port: 0, hmr: false, ws: false },
  });
  await server.listen();
  try {
    return await body(`http://127.0.0.1:${server.httpServer.address().port}/index.html`);
  } finally {
    await server.close();
  }
}

/** A page that is built into a folder of its own, and served from there. */
const built = (make) => async (root, body, serve) => {
  const out = join(root, "out");
  await make(root, out);
  return serve(out, (url) => body(`${url}/index.html`));
};

const viteBuild = (version) =>
  built(async (root, outDir) => (await import(version)).build({ ...options(root), base: "./", build: { outDir, emptyOutDir: true, target: "es2022" } }));

const esbuild = (entry) =>
  built((root, outdir) =>
    build({ absWorkingDir: root, entryPoints: { main: entry }, outdir, bundle: true, format: "esm", target: "es2022", loader: { ".wasm": "file" } }),
  );

const withRollup = built(async (root, dir) => {
  const plugin = { name: "packages", resolveId: (id) => (id === "agent-registry" ? join(root, "node_modules/agent-registry/index.js") : null) };
  const bundle = await rollup({ input: join(root, "copied.js"), plugins: [plugin], logLevel: "silent" });
  await bundle.write({ dir, format: "esm", entryFileNames: "main.js" });
});

/** Each way, and what its page says in the end. */
export const BUNDLERS = [
  ["Vite 6, development", (root, body) => vite("vite6", root, body), "provision"],
  ["Vite 7, development", (root, body) => vite("vite7", root, body), "provision"],
  ["Vite 8, development", (root, body) => vite("vite8", root, body), "provision"],
  ["Vite 6", viteBuild("vite6"), "provision"],
  ["Vite 7", viteBuild("vite7"), "provision"],
  ["Vite 8", viteBuild("vite8"), "provision"],
  ["esbuild", esbuild("imported.js"), "provision"],
  ["Rollup", withRollup, "provision"],
  ["esbuild without the file", esbuild("main.js"), "NOT_LOADED"],
];
