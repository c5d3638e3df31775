#!/usr/bin/env python3
"""Replays a CUDA graph of 200 nodes on the simulated GPU, bare and under `warpscope record --gpu-only`, and checks that each node
appears under the code that captured it.

    bench/graphs.py --warpscope target/release/warpscope [--replays 100000] [--rounds 1]

Needs root and cc. Prints the median times of the program, and the time that warpscope took after it.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from processes import BenchError, call

PROGRAMS = Path(__file__).resolve().parent.parent / "tests/programs"
LAYERS, BLOCKS = 8, 5
NODES = LAYERS * BLOCKS * 5


def timed(command, environment):
    begin = time.monotonic()
    call(command, env=environment)
    return time.monotonic() - begin


def check(folded, report, replays):
    """Every kernel under its path and the boundary, with the time of its runs; nothing unknown, nothing lost."""
    times = {}
    for line in folded.splitlines():
        stack, microseconds = line.rsplit(" ", 1)
        *frames, boundary, work = stack.split(";")
        if boundary != "[CUDA graph replay]":
            raise BenchError(f"not under the code that captured it: {line}")
        if "graph:" in work:
            path = work.split("graph:")[1]
            if ";".join(path.split(">")) not in stack:
                raise BenchError(f"under other code: {line}")
            times[path] = times.get(path, 0) + int(microseconds)
    if len(times) != LAYERS * BLOCKS or set(times.values()) != {3 * replays}:
        raise BenchError(f"{len(times)} paths with times of {set(times.values())} us, not {3 * replays} us")
    expected = {"operations": NODES * replays, "operations_unknown": 0, "nodes_unknown": 0}
    lost = sum(report["lost"].values())
    if report["graphs"] != expected or report["matched"] != NODES * replays or lost:
        raise BenchError(f"{report['graphs']}, {report['matched']} matched, {lost} lost")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True, type=Path)
    parser.add_argument("--replays", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    warpscope = options.warpscope.resolve()
    directory = Path(tempfile.mkdtemp(prefix="warpscope-graphs-"))
    try:
        libraries, program = directory / "sim", directory / "graphs"
        call([warpscope, "sim", "--libs", libraries])
        flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
        libs = [f"-L{libraries}", "-lcudart", "-lcuda", "-pthread"]
        call(["cc", *flags, "-o", program, PROGRAMS / "graphs.c", *libs])
        environment = {**os.environ, "WARPSCOPE_SIM": "kernel_ns=1us", "LD_LIBRARY_PATH": str(libraries)}
        arguments = [program, str(options.replays), "captured"]
        record = [warpscope, "record", "--sim", "-q", "--gpu-only"]
        outputs = ["-o", directory / "x.folded", "-o", directory / "x.wscope"]
        bare, recorded = [], []
        for _ in range(options.rounds):
            bare.append(timed(arguments, environment))
            recorded.append(timed([*record, *outputs, "--", *arguments], environment))
            report = json.loads(call([warpscope, "report", "--json", directory / "x.wscope"]))
            check((directory / "x.folded").read_text(), report, options.replays)
        size = (directory / "x.wscope").stat().st_size
        print(f"{options.replays:,} launches of {NODES} nodes: every node under the code that captured it, nothing lost")
        print(f"bare {statistics.median(bare):.1f} s, recorded {statistics.median(recorded):.1f} s with all outputs")
        print(f"recording: {size / 2**20:.0f} MiB, {size / (NODES * options.replays):.1f} bytes per operation")
    finally:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench/graphs.py: {error}")
