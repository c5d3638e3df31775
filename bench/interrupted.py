#!/usr/bin/env python3
"""Measures how much GPU work is missing from the recording of a program that dies of a signal.

    sudo bench/interrupted.py --warpscope target/release/warpscope --rounds 5 -- ./program arguments
    sudo bench/interrupted.py --warpscope target/release/warpscope --sim --rounds 5 -- ./program arguments

The command runs under `record` and is killed with SIGINT after `--seconds`. One line per round: the launches, those without GPU
work, and the time from the oldest of these to the last launch.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

GPU_WORK = {"kernel", "copy", "memset"}


def measure(options, output):
    record = [options.warpscope, "record", "--as-root", "-q", "--gpu-only", "-o", output]
    record += ["--sim"] if options.sim else []
    command = [*record, "--", "timeout", "-s", "INT", str(options.seconds), *options.command]
    status = subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode
    if status != 124:
        raise SystemExit(f"exit status {status} instead of 124: the command must still run after {options.seconds} s")
    launches, done = {}, set()
    for line in output.read_text().splitlines():
        event = json.loads(line)
        if event["type"] == "launch":
            launches[event["session"], event["correlation"]] = event["ts_ns"]
        elif event["type"] in GPU_WORK:
            done.add((event["session"], event["correlation"]))
    missing = [time for key, time in launches.items() if key not in done]
    oldest = (max(launches.values()) - min(missing)) / 1e6 if missing else 0
    print(f"{len(launches)} launches, {len(missing)} without GPU work, the oldest {oldest:.1f} ms before the last launch", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Measure the GPU work lost when a program is interrupted.")
    parser.add_argument("--warpscope", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--sim", action="store_true", help="use the simulated GPU")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="warpscope-interrupted-") as directory:
        for _ in range(options.rounds):
            measure(options, Path(directory) / "run.jsonl")


if __name__ == "__main__":
    main()
