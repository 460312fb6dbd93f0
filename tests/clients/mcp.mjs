// The official SDKs as clients of MCP: `node mcp.mjs URL CLIENT CALLS`. CLIENT is a revision without a handshake or `legacy`, for the
// SDK's second version; a package of its first version; or `inspector`, the official inspector's command line. CALLS is JSON,
// `[[tool, arguments], ...]`. Prints what it got.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const [url, name, calls] = process.argv.slice(2);
const about = { name: "end-to-end", version: "1.0.0" };

async function connected() {
  const address = new URL(url);
  if (!name.includes("sdk")) {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const mode = name === "legacy" ? name : { pin: name };
    const client = new Client(about, { versionNegotiation: { mode } });
    await client.connect(new StreamableHTTPClientTransport(address));
    // The revision without a handshake has no ping.
    if (name === "legacy") await client.ping();
    return client;
  }
  const { Client } = await import(`${name}/client/index.js`);
  const { StreamableHTTPClientTransport } = await import(`${name}/client/streamableHttp.js`);
  const client = new Client(about);
  await client.connect(new StreamableHTTPClientTransport(address));
  await client.ping();
  return client;
}

/** The inspector as a client: a process a call. */
function inspector() {
  const program = fileURLToPath(new URL("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", import.meta.url));
  const ask = async (method, ...more) => {
    const options = ["--cli", "--quiet", "--protocol-era", "auto", "--transport", "http", "--method", method, ...more];
    const { stdout } = await promisify(execFile)(process.execPath, [program, ...options, url]);
    return JSON.parse(stdout);
  };
  return {
    getServerVersion: async () => (await ask("initialize")).serverInfo,
    listTools: () => ask("tools/list"),
    callTool: ({ name, arguments: args }) => ask("tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(args)),
    close() {},
  };
}

const client = name === "inspector" ? inspector() : await connected();
const { tools } = await client.listTools();
const results = [];
for (const [name, args] of JSON.parse(calls)) results.push(await client.callTool({ name, arguments: args }));
console.log(JSON.stringify({ server: await client.getServerVersion(), tools: tools.map(({ name }) => name), results }));
await client.close();
