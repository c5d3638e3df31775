#!/usr/bin/env python3
"""Records the examples on a real GPU and checks every recording for consistency. Needs a GPU, nvcc, root.

    tests/gpu.py --warpscope target/release/warpscope [--out DIR] [NAME...]

Checks for each program that every kernel, copy and memset appears under the launch that caused it; that the GPU time is what
CUPTI delivered; that the stacks are whole, from the thread's start to the launch; that nvcc's host stub agrees with the kernel
under it; that the work of CUDA graphs is under the code that captured it; and that the program ends as it does alone. Prints a
table; exits with 1 if a check fails.
"""

import json
import re
import sys
import time

from gpu_examples import EXAMPLES, PYTHON, ROOT, prepare, run

PROGRAMS = {
    "vectoradd": [EXAMPLES / "bin/vectoradd", "200"],
    "vectoradd-shared": [EXAMPLES / "bin/vectoradd-shared", "200"],
    "transformer": [EXAMPLES / "bin/transformer", "64"],
    "train.py": [PYTHON, EXAMPLES / "train.py", "30"],
    "infer.py": [PYTHON, EXAMPLES / "infer.py", "50"],
    "triton_add.py": [PYTHON, EXAMPLES / "triton_add.py"],
    "cupy_saxpy.py": [PYTHON, EXAMPLES / "cupy_saxpy.py"],
    "graphs.py": [PYTHON, EXAMPLES / "graphs.py"],
    "jax_mlp.py": [PYTHON, EXAMPLES / "jax_mlp.py"],
    "qwen3.py": [PYTHON, EXAMPLES / "qwen3.py"],
}


def python_share(folded):
    """The share of GPU time under a line of Python."""
    time = {True: 0, False: 0}
    for line in folded.read_text(errors="replace").splitlines():
        stack, weight = line.rsplit(" ", 1)
        if "[GPU" in stack:
            time[re.search(r"\.py:\d+\)", stack) is not None] += int(weight)
    return time[True] / max(1, sum(time.values()))


def check(name, command, warpscope, out):
    folded, recording = out / f"{name}.folded", out / f"{name}.wscope"
    started = time.monotonic()
    alone = run(command)
    middle = time.monotonic()
    recorded = run([warpscope, "record", "--as-root", "-q", "-o", folded, "-o", recording, "--", *command])
    ended = time.monotonic()
    row = {"name": name, "alone_s": middle - started, "recorded_s": ended - middle, "wrong": []}
    if recorded.returncode != alone.returncode:
        row["wrong"].append(f"exit status {recorded.returncode}, alone {alone.returncode}: {recorded.stderr[-400:]}")
    report = json.loads(run([warpscope, "report", "--json", recording]).stdout)
    activities = report["kernels"] + report["copies"] + report["memsets"]
    delivered = report["kernel_time_delivered_ns"]
    row.update(
        launches=report["launches"],
        kernels=report["kernels"],
        activities=activities,
        unmatched=report["unmatched_activities"],
        pending=report["pending_launches"],
        kernel_ns=report["kernel_time_ns"],
        time_off=abs(report["kernel_time_ns"] - delivered) / delivered if delivered else 1.0,
        whole=report["gpu_stack_ends"].get("whole", 0) / max(1, activities - report["unmatched_activities"]),
        ends=report["gpu_stack_ends"],
        cpu_ends=report["cpu_stack_ends"],
        # Not a loss of events: Python and native frames of these stacks could not be paired.
        uneven=report["lost"].pop("python_stacks_uneven"),
        lost={cause: number for cause, number in report["lost"].items() if number},
        notes=report["notes"],
        samples=report["cpu_samples"],
    )
    row["python"] = python_share(folded)
    stubs = run([PYTHON, ROOT / "tests/check_stubs.py", folded])
    row["stubs"] = stubs.stdout.strip().splitlines()[0] if stubs.stdout.strip() else stubs.stderr.strip()
    if stubs.returncode:
        row["wrong"].append("stubs: " + stubs.stdout[-400:])
    if activities == 0 or row["unmatched"]:
        row["wrong"].append(f"{row['unmatched']} of {activities} activities unmatched")
    if row["time_off"] > 0.001:
        row["wrong"].append(f"GPU time off by {row['time_off']:.4%}")
    graphs = report.get("graphs", {"operations": 0, "operations_unknown": 0})
    if graphs["operations_unknown"] > 0.01 * graphs["operations"]:
        row["wrong"].append(f"{graphs['operations_unknown']} of {graphs['operations']} operations of graphs not under their capture")
    if row["lost"]:
        row["wrong"].append(f"lost {row['lost']}")
    return row


def main():
    options = prepare(__doc__, PROGRAMS)
    out = options.out
    rows = [check(name, PROGRAMS[name], options.warpscope, out) for name in options.names]
    columns = "{:<17} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8} {:>10} {:>9} {:>9}"
    print(columns.format("program", "launches", "kernels", "unmatched", "pending", "whole", "Python", "time off", "alone s", "with s"))
    for row in rows:
        print(
            columns.format(
                row["name"], row["launches"], row["kernels"], row["unmatched"], row["pending"],
                f"{row['whole']:.2%}", f"{row['python']:.1%}", f"{row['time_off']:.4%}", f"{row['alone_s']:.1f}", f"{row['recorded_s']:.1f}",
            )
        )  # fmt: skip
    for row in rows:
        print(f"{row['name']}: {row['stubs']}; stacks {row['ends']}; samples {row['samples']} {row['cpu_ends']}, {row['uneven']} uneven")
        for text in row["notes"]:
            print(f"    note: {text}")
        for text in row["wrong"]:
            print(f"    WRONG: {text}")
    (out / "gpu.json").write_text(json.dumps(rows, indent=1))
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
