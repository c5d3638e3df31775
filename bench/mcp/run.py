#!/usr/bin/env python3
"""How long `warpscope mcp` takes to answer about a recording of ten million events, and its memory. See README.md."""

import argparse
import json
import os
import subprocess
import time
from pathlib import Path

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


class Server:
    def __init__(self, warpscope, recording):
        command = [warpscope, "mcp", recording.parent]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last = 0

    def request(self, method, params):
        """Returns the answer to a request."""
        self.last += 1
        params = {"_meta": META, **params}
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def tools(self):
        """The names of the tools."""
        return [tool["name"] for tool in self.request("tools/list", {})["result"]["tools"]]

    def call(self, tool, arguments):
        """Returns how long the answer took, in seconds, and its bytes."""
        begin = time.monotonic()
        answer = self.request("tools/call", {"name": tool, "arguments": arguments})
        took = time.monotonic() - begin
        assert not answer["result"]["isError"], answer
        return took, len(answer["result"]["content"][0]["text"])

    def cpu(self):
        """The CPU time of the server, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path, help="as written by the example mcp_bench")
    parser.add_argument("--warpscope", default="target/release/warpscope")
    options = parser.parse_args()
    recording = options.recording.resolve()
    server = Server(options.warpscope, recording)
    run = {"recording": recording.name}
    tables = ["kernels", "classes", "phases", "paths", "user-paths", "lines", "steps", "functions", "threads", "idle", "ledger"]
    calls = [("findings (opens it)", "findings", run), ("summary", "summary", run), ("findings", "findings", run)]
    calls += [("flame", "flame", run), ("flame, bottom_up", "flame", {**run, "view": "gpu", "direction": "bottom_up"})]
    calls += [(f"table {name}", "table", {**run, "table": name}) for name in tables]
    calls += [("timeline", "timeline", {**run, "at": "30s"})]
    if "sql" in server.tools():
        query = "SELECT s.line, count(*) AS runs, sum(k.end_ns - k.start_ns) AS ns FROM kernels k JOIN stacks s USING (recording, stack) GROUP BY ALL ORDER BY ns DESC LIMIT 20"
        calls += [(title, "sql", {**run, "query": query}) for title in ("sql (writes the tables)", "sql")]
    calls += [("diff", "diff", {"before": [recording.name], "after": [recording.name]})]
    print(f"{'call':<24}{'seconds':>9}{'CPU':>9}{'bytes':>9}{'peak MiB':>10}")
    for title, tool, arguments in calls:
        before = server.cpu()
        took, length = server.call(tool, arguments)
        used = server.cpu() - before
        print(f"{title:<24}{took:>9.2f}{used:>9.2f}{length:>9}{server.peak_mib():>10.0f}", flush=True)
    server.process.stdin.close()
    server.process.wait()


if __name__ == "__main__":
    main()
