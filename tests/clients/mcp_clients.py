"""Python's clients of MCP: `python mcp_clients.py URL CLIENT CALLS`, as mcp.mjs. CLIENT is `mcp` or `fastmcp`."""

import asyncio
import json
import sys

import fastmcp
import mcp

URL, NAME, CALLS = sys.argv[1:]


async def main() -> dict:
    if NAME == "fastmcp":
        async with fastmcp.Client(URL) as client:
            tools = await client.list_tools()
            results = [await client.call_tool_mcp(name, arguments) for name, arguments in json.loads(CALLS)]
            # Made of the output schema: a verdict has its members.
            name, arguments = json.loads(CALLS)[0]
            assert (await client.call_tool(name, arguments)).data.decision == "provision"
            server = {"name": "agent-registry"}
    else:
        async with mcp.Client(URL) as client:
            tools = (await client.list_tools()).tools
            results = [await client.call_tool(name, arguments) for name, arguments in json.loads(CALLS)]
            server = client.server_info.model_dump(mode="json")
    answers = [result.model_dump(mode="json", by_alias=True) for result in results]
    return {"server": server, "tools": [tool.name for tool in tools], "results": answers}


print(json.dumps(asyncio.run(main())))
