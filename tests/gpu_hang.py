#!/usr/bin/env python3
"""Looks at a stuck job of four real NCCL ranks on one GPU with `warpscope hang`, three times.

    tests/gpu_hang.py --warpscope target/release/warpscope

Rank 2 must be named with its line within 2 s, while the others wait; and none of them may be disturbed. Exits with 1 otherwise.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time

from gpu_examples import ROOT, run
from gpu_ranks import torchrun

EXPECTED = r"3 of 4 ranks wait for the GPU.*; rank 2 \(pid \d+ on .*\) has not arrived: load_batch \(stuck.py:\d+\), sleeping\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True)
    options = parser.parse_args()
    job = subprocess.Popen(
        [str(part) for part in torchrun(4, "stuck", 29531)], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
    )
    wrong = []
    try:
        for _ in range(4):
            job.stdout.readline()
        time.sleep(2)
        for _ in range(3):
            begun = time.monotonic()
            seen = run([options.warpscope, "hang", "--all"], timeout=60)
            took = time.monotonic() - begun
            print(f"status {seen.returncode}, {took:.2f} s\n{seen.stdout}{seen.stderr}", flush=True)
            if seen.returncode != 3 or not re.match(EXPECTED, seen.stdout) or took > 2:
                wrong.append(seen.stdout)
            if job.poll() is not None:
                wrong.append("the job has ended")
    finally:
        os.killpg(job.pid, signal.SIGKILL)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
