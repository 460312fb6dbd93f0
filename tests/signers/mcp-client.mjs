// The official SDK's client of MCP: `node mcp-client.mjs URL REVISION CALLS`. REVISION is a revision without a
// handshake, or `legacy`; CALLS is JSON, `[[tool, arguments], ...]`. Prints what it got.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, revision, calls] = process.argv.slice(2);
const mode = revision === "legacy" ? revision : { pin: revision };
const client = new Client({ name: "end-to-end", version: "1.0.0" }, { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const results = [];
for (const [name, args] of JSON.parse(calls)) {
  results.push(await client.callTool({ name, arguments: args }));
}
console.log(JSON.stringify({ server: client.getServerVersion(), tools: tools.map(({ name }) => name), results }));
await client.close();
