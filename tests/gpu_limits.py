#!/usr/bin/env python3
"""What `record --limits` says on a real GPU: kernels of known nature, ncu's values for the same kernels, training, decoding, a graph.

usage: tests/gpu_limits.py --warpscope W [--out DIRECTORY] [--only PART]

Needs nvcc, ncu (left out if it is missing), and Python with PyTorch and transformers.
"""

import argparse
import csv
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent / "gpu_limits"
# What limits each kernel, as it is written.
NATURE = {
    "stream_copy": "dram",
    "strided": "dram",
    "random_gather": "latency",
    "bank_conflicts": "bank-conflicts",
    "divergent": "fp32",
    "fp64": "fp64",
    "fp32": "fp32",
    "tensor_large": "tensor",
    "tensor_tiny": "small-grid",
    "atomics": "l2",
    "latency_chain": "latency",
    "low_occupancy": "occupancy",
    "tail_wave": "tail",
    "l2_resident": "l2",
}
# Of report --json, and ncu's metrics with the same meaning.
COMPARED = {
    "sm_active": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_elapsed",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "fp32": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "fp64": "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
}


class Try:
    def __init__(self, options):
        self.warpscope, self.out = options.warpscope, options.out
        self.failures = 0

    def check(self, holds, text):
        self.failures += not holds
        print(("ok      " if holds else "FAILED  ") + text, flush=True)

    def record(self, name, command, options=("--limits",)):
        recording = self.out / f"{name}.wscope"
        words = [self.warpscope, "record", *options, "-q", "-o", recording, "--", *command]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=240)
        if ran.returncode != 0:
            print(ran.returncode, ran.stderr[-2000:])
        self.check(ran.returncode == 0, f"{name}: ends with 0")
        report = subprocess.run([self.warpscope, "report", "--json", recording], capture_output=True, text=True)
        return ran.stdout, json.loads(report.stdout), ran.stderr

    def judged(self, name, report):
        limits = report.get("limits") or {}
        share = limits.get("judged_ns", 0) / max(limits.get("kernel_ns", 0), 1)
        counts = {key: limits.get(key) for key in ("measured", "disturbed", "lost", "communication", "took_ns")}
        print(f"        {name}: {100 * share:.1f} % of the kernels' time is judged, {counts}", flush=True)
        for row in limits.get("kernels", [])[:8]:
            print(f"        {100 * row['share']:5.1f} % {row['limit']:<14} {row['of_peak'] or 0:5.1f} {row['kernel'][:40]} < {row['line']}")
        return share

    def kernels(self):
        program = self.out / "kernels"
        subprocess.run(["nvcc", "-arch=native", "-O3", "-o", program, HERE / "kernels.cu"], check=True)
        _, report, _ = self.record("kernels", [program, "3000"])
        self.judged("kernels", report)
        rows = {row["kernel"].split("(")[0].split()[-1]: row for row in report["limits"]["kernels"]}
        for name, limit in NATURE.items():
            row = rows.get(name, {"limit": None})
            self.check(row["limit"] == limit, f"{name}: {row['limit']}, as written {limit}; {row.get('meaning', '')[:90]}")
        if shutil.which("ncu"):
            self.compare(program, rows)

    def compare(self, program, rows):
        metrics = ",".join(COMPARED.values())
        words = ["ncu", "--clock-control", "none", "--cache-control", "none", "--launch-skip", "15", "--launch-count", "56"]
        ran = subprocess.run([*words, "--metrics", metrics, "--csv", program, "6"], capture_output=True, text=True)
        lines = [line for line in ran.stdout.splitlines() if line.startswith('"')]
        theirs = {}
        for line in csv.DictReader(io.StringIO("\n".join(lines))):
            name, value = line["Kernel Name"].split("(")[0], line["Metric Value"].replace(",", "")
            theirs.setdefault((name, line["Metric Name"]), []).append(float(value))
        print(f"        {'kernel':<16}" + "".join(f"{key:>18}" for key in COMPARED))
        worst = 0.0
        for name in NATURE:
            text = ""
            for key, metric in COMPARED.items():
                ours, their = rows.get(name, {}).get(key), theirs.get((name, metric))
                if ours is None or not their:
                    text += f"{'-':>18}"
                    continue
                their = statistics.median(their)
                # Shares below 5 % are compared as points.
                difference = (ours - their) / max(their, 5.0) * 100
                worst = max(worst, abs(difference), key=abs)
                text += f"{ours:>8.2f}{their:>9.2f}{'*' if abs(difference) > 2 else ' '}"
            print(f"        {name:<16}{text}")
        print(f"        the largest difference from ncu is {worst:.1f} % (* above 2 %)", flush=True)

    def train(self):
        program = [sys.executable, HERE / "train.py", "400"]
        plain, steps = None, {"bare": [], "record": [], "limits": []}
        for _ in range(2):
            bare = subprocess.run(program, capture_output=True, text=True).stdout.split()
            steps["bare"].append(float(bare[2]))
            plain = bare[3]
            stdout, _, _ = self.record("train-plain", program, options=())
            steps["record"].append(float(stdout.split()[2]))
            stdout, report, _ = self.record("train", program)
            steps["limits"].append(float(stdout.split()[2]))
            self.check(stdout.split()[3] == plain, f"the weights are bit-identical: {plain}")
            print(f"        mean step {({key: f'{value[-1]:.2f} ms' for key, value in steps.items()})}", flush=True)
        self.check(self.judged("train", report) >= 0.95, "train: at least 95 % is judged")
        mean = {key: statistics.median(value) for key, value in steps.items()}
        ratio = mean["limits"] / mean["record"]
        self.check(ratio <= 1.10, f"mean steps {mean}: {ratio:.3f} times record")

    def decode(self):
        _, report, _ = self.record("decode", [sys.executable, HERE.parent / "gpu_steps" / "decode.py", "64"])
        self.check(self.judged("decode", report) >= 0.95, "decode: at least 95 % is judged")

    def graph(self):
        stdout, report, _ = self.record("graph", [sys.executable, HERE / "graph.py"])
        self.check("EQUAL True" in stdout, "the captured graph computes what it should")
        self.judged("graph", report)

    def overlap(self):
        program = self.out / "overlap"
        subprocess.run(["nvcc", "-arch=native", "-O3", "-o", program, HERE / "overlap.cu"], check=True)
        _, report, _ = self.record("overlap", [program])
        rows = {row["kernel"].split("(")[0]: row for row in report["limits"]["kernels"]}
        small = rows["small"]
        self.check((small["issue"] or 0) < 5, f"what runs on another stream is not counted: {small['issue']} % issued")
        self.judged("overlap", report)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warpscope", required=True)
    parser.add_argument("--out", type=Path, default=Path("gpu_limits.out"))
    parser.add_argument("--only", choices=["kernels", "train", "decode", "graph", "overlap"], action="append")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    options.warpscope = os.path.abspath(options.warpscope)
    work = Try(options)
    for part in options.only or ["kernels", "overlap", "graph", "train", "decode"]:
        print(f"== {part}", flush=True)
        try:
            getattr(work, part)()
        except Exception as error:
            work.check(False, f"{part}: {error!r}")
    print(f"{work.failures} failures")
    sys.exit(work.failures > 0)


if __name__ == "__main__":
    main()
