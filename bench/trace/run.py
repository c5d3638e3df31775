#!/usr/bin/env python3
"""Measures the cost of tracing a call: untraced, with empty probes, under `warpscope trace`, with --summary-only, and under
bpftrace doing the same.

    bench/trace/run.py --gpu --warpscope target/release/warpscope       the real libcuda; needs cc, root
    bench/trace/run.py --sim --warpscope target/release/warpscope       the simulated GPU's libcuda

The modes run alternately, so that a machine that slows down affects all of them equally. Prints medians, and the time that
each adds to a call. A round whose tracer did not see every call is an error, not a fast round. If bpftrace is not
installed, its rows are omitted.
"""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed_call import FUNCTION, Loop, add_arguments, ns_per_call, print_table  # noqa: E402
from processes import BenchError, call  # noqa: E402


class Tracers:
    def __init__(self, loop, directory):
        self.loop, self.directory = loop, directory

    def warpscope(self, *options):
        binary, recording = self.loop.arguments.warpscope, self.directory / "trace.wscope"
        command = [binary, "trace", "-q", "--no-gpu", *options, "-o", recording, "--", *self.loop.command]
        output = call(command, self.loop.environment)
        report = json.loads(call([binary, "report", "--json", recording]))
        seen = sum(f["calls"] for f in report["trace"]["functions"] if f["name"] == FUNCTION)
        lost = report["lost"].get("ring_calls", 0)
        if seen + lost < self.loop.made:
            raise BenchError(f"{self.loop.made} calls were made, {seen} were traced, {lost} were lost")
        if lost:
            print(f"  {lost} of {self.loop.made} calls were lost", file=sys.stderr)
        return ns_per_call(output)

    def trace(self):
        return self.warpscope()

    def summary(self):
        return self.warpscope("--summary-only")

    def bpftrace(self, at_return):
        probe = f"{self.loop.library}:{FUNCTION}"
        text = f"uprobe:{probe} {{ @start[tid] = nsecs; }} uretprobe:{probe} /@start[tid]/ {{ {at_return} delete(@start[tid]); }}"
        environment = dict(self.loop.environment, BPFTRACE_PERF_RB_PAGES="4096")
        command = ["bpftrace", "-o", self.directory / "bpftrace.txt", "-e", text, "-c", " ".join(map(str, self.loop.command))]
        return ns_per_call(call(command, environment))

    def bpftrace_lines(self):
        return self.bpftrace('printf("%d %d %d\\n", tid, nsecs - @start[tid], retval);')

    def bpftrace_sums(self):
        return self.bpftrace("@calls = count(); @ns = sum(nsecs - @start[tid]); @by = hist(nsecs - @start[tid]);")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, 200_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        loop = Loop(arguments, Path(name))
        by = Tracers(loop, Path(name))
        modes = {"untraced": loop.alone, "empty probes": loop.with_empty_probes}
        modes |= {"trace": by.trace, "trace --summary-only": by.summary}
        if shutil.which("bpftrace"):
            modes |= {"bpftrace, one line per call": by.bpftrace_lines, "bpftrace, sums": by.bpftrace_sums}
        print_table(loop, modes, "trace")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/trace: {error}")
