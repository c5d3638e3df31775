#!/usr/bin/env python3
"""Measures what `record` adds to CUPTI within one run: records and stacks are taken in random windows of about 20 ms, half of the time.

    sudo bench/programs/windows.py --warpscope target/release/warpscope [--program decode] [--seconds 20]

Outside the windows launches are only counted, and CUPTI is in the state "records, disabled again" of cupti_states.py. Prints how much longer
a launch takes within the windows than outside, for each run. The speed of a program changes from one second to the next by more than this, but
hardly from one window to the next.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Records during half of the time; the stacks of all launches in them, or of one in 256.
ALL_STACKS, FEW_STACKS = "0,1", "8,1"
STEPS = {"train_small": 350, "decode": 2.5}


def run(options, directory):
    recording = directory / "out.wscope"
    steps = round(STEPS[options.program] * options.seconds)
    program = [sys.executable, HERE / f"{options.program}.py", "--steps", steps]
    command = [options.warpscope, "record", "--as-root", "-q", "-o", recording, "--", *program]
    environment = os.environ | {"WARPSCOPE_SAMPLING": FEW_STACKS if options.without_stacks else ALL_STACKS}
    subprocess.run([str(part) for part in command], env=environment, check=True, stdout=subprocess.DEVNULL)
    report = subprocess.run([options.warpscope, "report", "--json", recording], check=True, capture_output=True, text=True).stdout
    sampling = json.loads(report)["sampling"]
    share = sampling["recorded_share"]
    within = sampling["recorded_launches"] / share
    outside = sampling["counted_launches"] / (1 - share)
    return outside / within


def main():
    parser = argparse.ArgumentParser(description="Measure what record adds to CUPTI within one run.")
    parser.add_argument("--warpscope", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--program", default="train_small", choices=list(STEPS))
    parser.add_argument("--seconds", type=float, default=20, help="about how long a run takes")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--without-stacks", action="store_true", help="take only one stack in 256: what the rest of record costs")
    options = parser.parse_args()
    ratios = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="warpscope-windows-") as directory:
            ratios.append(run(options, Path(directory)))
        print(f"{options.program}: {ratios[-1]:.3f}", flush=True)
    print(f"{options.program}: median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
