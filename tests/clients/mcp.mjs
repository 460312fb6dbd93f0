// The official SDKs as clients of MCP: `node mcp.mjs URL CLIENT CALLS`. CLIENT is a revision without a handshake or `legacy`, for the
// SDK's second version; or a package of its first version. CALLS is JSON, `[[tool, arguments], ...]`. Prints what it got.

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

const client = await connected();
const { tools } = await client.listTools();
const results = [];
for (const [name, args] of JSON.parse(calls)) results.push(await client.callTool({ name, arguments: args }));
console.log(JSON.stringify({ server: client.getServerVersion(), tools: tools.map(({ name }) => name), results }));
await client.close();
