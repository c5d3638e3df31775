#!/usr/bin/env python3
"""Checks the verdicts of `record --counters` with kernels that are each limited by one thing. Needs a GPU, PyTorch, root.

    tests/gpu_counters.py --warpscope target/release/warpscope [--out DIR]

Records three loops with PyTorch: a bf16 matrix multiplication (tensor bound), an elementwise copy of 1 GiB (memory bound), and a
kernel with two blocks (too small). Once with a command that `record` starts, and once with a process whose CUDA context existed
before sampling started (`record -p`). Prints one table; exits with 1 if a verdict is not the expected one, if counters are not
from PM sampling, or if samples were lost. Takes less than a minute.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_examples import PYTHON, run

# The verdict of the kernel with the most time.
LOOPS = {"matmul": "tensor bound", "copy": "memory bound", "small": "too small"}

PROGRAM = """
import sys, time, torch
loop, seconds, waits = sys.argv[1], float(sys.argv[2]), len(sys.argv) > 3
if loop == "matmul":
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    step = lambda: torch.mm(a, b)
elif loop == "copy":
    a = torch.zeros(1 << 28, device="cuda")
    b = torch.empty_like(a)
    step = lambda: torch.add(a, 1, out=b)
else:
    # A block for each of two rows. With one row, PyTorch divides it among all blocks.
    a = torch.randn(2, 1 << 22, device="cuda")
    step = lambda: torch.cumsum(a, 1)
for _ in range(3):
    step()
torch.cuda.synchronize()
if waits:
    print("ready", flush=True)
    sys.stdin.readline()
end = time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(20):
        step()
    torch.cuda.synchronize()
"""


def report(warpscope, recording):
    return json.loads(run([warpscope, "report", "--json", recording]).stdout)


def started(warpscope, program, loop, recording):
    """`record` starts the program."""
    done = run([warpscope, "record", "--gpu-only", "--counters", "-q", "-o", recording, "--", PYTHON, program, loop, "1.5"])
    if done.returncode:
        sys.exit(f"cannot record {loop}: {done.stderr[-800:]}")
    return report(warpscope, recording)


def attached(warpscope, program, loop, recording):
    """The program has its context before sampling starts, and begins its loop while it is recorded."""
    target = subprocess.Popen([PYTHON, program, loop, "6", "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if target.stdout.readline() != "ready\n":
            sys.exit(f"{loop}: the program failed")
        target.stdin.write("go\n")
        target.stdin.flush()
        command = [warpscope, "record", "--gpu-only", "--counters", "-q", "-d", "2", "-o", recording, "-p", target.pid]
        done = run(command)
        if done.returncode:
            sys.exit(f"cannot record {loop} with -p: {done.stderr[-800:]}")
    finally:
        target.kill()
        target.wait()
    return report(warpscope, recording)


def check(name, loop, numbers):
    """Prints a row, and returns what is wrong."""
    wrong = [f"{name}: {source}" for source in {row["source"] for row in numbers.get("counters", [])} - {"PM"}]
    verdicts = numbers.get("kernels_by_counters")
    if not verdicts:
        return [f"{name}: no PM samples: {numbers['notes']}"]
    first = verdicts["kernels"][0]
    value = lambda key, scale=1: "-" if first[key] is None else f"{first[key] / scale:.1f}"
    cells = [value("sm_active"), value("tensor"), value("dram"), value("issued"), value("dram_bytes_per_second", 1e12)]
    print(f"{name:<16} {first['verdict']:<13} {' '.join(f'{cell:>8}' for cell in cells)} {first['samples']:>8}  {first['kernel'][:50]}", flush=True)
    if first["verdict"] != LOOPS[loop]:
        wrong.append(f"{name}: {first['kernel']} is {first['verdict']}, not {LOOPS[loop]}")
    for key in ["counter_samples", "counter_overflows"]:
        if numbers["lost"][key]:
            wrong.append(f"{name}: {key} {numbers['lost'][key]}")
    if verdicts["samples"]["late_ns"]:
        wrong.append(f"{name}: {verdicts['samples']['late_ns']} ns of kernels were late")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True, type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="warpscope-gpu-"))
    out.mkdir(parents=True, exist_ok=True)
    program = out / "loops.py"
    program.write_text(PROGRAM)
    columns = " ".join(f"{name:>8}" for name in ["SM %", "tensor %", "DRAM %", "issue %", "TB/s", "samples"])
    print(f"{'loop':<16} {'verdict':<13} {columns}  kernel")
    wrong = []
    for loop in LOOPS:
        wrong += check(loop, loop, started(options.warpscope, program, loop, out / f"{loop}.wscope"))
    for loop in ["matmul", "copy"]:
        name = f"{loop}, attached"
        wrong += check(name, loop, attached(options.warpscope, program, loop, out / f"{loop}-attached.wscope"))
    for text in wrong:
        print(f"WRONG: {text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
