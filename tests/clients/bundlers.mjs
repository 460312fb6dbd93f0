// A page by the bundlers that others use. Each is given the folder of a project, and gives an address of the page while `body` runs.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { build } from "esbuild";
import { rollup } from "rollup";
import webpack from "webpack";

export { checkPackage, createPackageFromTarballData } from "@arethetypeswrong/core";
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

const withWebpack = built(async (root, path) => {
  const compiler = webpack({ context: root, entry: "./main.js", mode: "production", output: { path, filename: "main.js" } });
  const stats = await promisify(compiler.run.bind(compiler))();
  await promisify(compiler.close.bind(compiler))();
  if (stats.hasErrors()) throw new Error(stats.toString());
});

/** Next's build and server: a page whose title has a server component's verdict, and a client component's. */
async function next(root, body) {
  const program = fileURLToPath(new URL("node_modules/next/dist/bin/next", import.meta.url));
  const options = { cwd: root, env: { ...process.env, NEXT_TELEMETRY_DISABLED: "1", NODE_ENV: "production" } };
  await promisify(execFile)(process.execPath, [program, "build"], options);
  const server = spawn(process.execPath, [program, "start", "--hostname", "127.0.0.1", "--port", "0"], options);
  try {
    const url = await new Promise((found, failed) => {
      let said = "";
      server.once("exit", () => failed(new Error(`Next has ended: ${said}`)));
      for (const pipe of [server.stdout, server.stderr]) {
        pipe.on("data", (text) => {
          said += text;
          const [url] = /http:\/\/127\.0\.0\.1:[1-9]\d*/.exec(said) ?? [];
          if (url) found(url);
        });
      }
    });
    return await body(url);
  } finally {
    const over = once(server, "exit");
    server.kill("SIGKILL");
    await over;
  }
}

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
  ["webpack 5", withWebpack, "provision"],
  ["Next 16, server and client components", next, "provision, provision"],
  ["esbuild without the file", esbuild("main.js"), "NOT_LOADED"],
];
