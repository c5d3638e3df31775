#!/usr/bin/env python3
"""Lists and calls every tool of `warpscope mcp` with the client of PyPI's `mcp`, in both versions of the protocol.

    mcp_client.py WARPSCOPE RECORDINGS SOURCES
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

# The longest answer.
BYTES = 16 << 10


def arguments(tool, recording):
    """Valid arguments, by the name of a tool."""
    about = {"recording": recording}
    return {
        "list_recordings": {},
        "summary": about,
        "findings": about,
        "flame": {**about, "view": "gpu"},
        "table": {**about, "table": "kernels"},
        "timeline": {**about, "at": "10ms"},
        "diff": {"before": [recording], "after": [recording]},
        "sql": {**about, "query": "SELECT name, sum(end_ns - start_ns) AS ns FROM kernels GROUP BY name"},
        "explain": {"term": "matched"},
        "source": {**about, "frame": "main"},
    }[tool]


async def check(mode, version, command):
    server = StdioServerParameters(command=command[0], args=["mcp", command[1], "--source", command[2]])
    async with Client(server, mode=mode) as client:
        assert client.protocol_version == version, client.protocol_version
        tools = (await client.list_tools()).tools
        listed = await client.call_tool("list_recordings", {})
        recording = json.loads(listed.content[0].text)["recorded"]["recordings"][0]["recording"]
        for tool in tools:
            result = await client.call_tool(tool.name, arguments(tool.name, recording))
            text = result.content[0].text
            assert set(json.loads(text)) == {"server", "recorded"}, text
            assert len(text) <= BYTES, (tool.name, len(text))
            # A frame without a line has no source.
            assert tool.name == "source" or not result.is_error, text
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
        assert resources and templates
        for uri in [*(resource.uri for resource in resources), "warpscope://explain/gpu-idle"]:
            assert (await client.read_resource(uri)).contents[0].text
        for name in ["nothing", ""]:
            try:
                await client.call_tool(name, {})
            except MCPError as error:
                assert error.code == -32602, error
            else:
                raise AssertionError(f"{name!r} was called")
        print(f"{version}: called {len(tools)} tools")


async def main():
    for mode, version in [("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28"), ("auto", "2026-07-28")]:
        await check(mode, version, sys.argv[1:])


asyncio.run(main())
