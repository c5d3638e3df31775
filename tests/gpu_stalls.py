#!/usr/bin/env python3
"""Checks `record --stalls` with kernels that each have one known bottleneck. Needs a GPU, nvcc, root; Triton if it is installed.

    tests/gpu_stalls.py --warpscope target/release/warpscope [--out DIR]

Compiles `gpu_stalls/bottlenecks.cu`, whose comments mark the line and the stall of each kernel, records it, and compares. The
kernel of `examples/triton_add.py` must show lines of its Python source. Then the same with `--stalls=serialised`, and the stalls of each
kernel beside those that `ncu` counts, if it is installed. Then `record --stalls` while another process samples counters: everything
but stalls must be there. Then the end of a recording while eight threads launch, which must go on. Prints tables; exits with 1 if a
line is not the one that was marked, if samples were lost or have no launch although kernels were serialised, if a kernel has no
instruction although nvdisasm is there, or if its most frequent stall is not ncu's.
"""

import argparse
import collections
import csv
import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_examples import EXAMPLES, PYTHON, ROOT, run

CUPTI = Path("/usr/local/cuda/targets/x86_64-linux/lib/libcupti.so")
SOURCE = ROOT / "tests/gpu_stalls/bottlenecks.cu"


def expected():
    """The marked line, and the stalls that are right there, of each kernel."""
    marks, kernel = {}, None
    for number, line in enumerate(SOURCE.read_text().splitlines(), 1):
        if found := re.match(r"__global__ void (\w+)\(", line):
            kernel = found[1]
        if found := re.search(r"// bottleneck: (.*)", line):
            marks[kernel] = number, found[1].split(" | ")
    return marks


def record(warpscope, out, name, command, stalls="--stalls"):
    recording = out / f"{name}.wscope"
    done = run([warpscope, "record", "--as-root", "--gpu-only", stalls, "-o", recording, "--", *command])
    if done.returncode:
        sys.exit(f"cannot record {name}: {done.stderr[-800:]}")
    report = json.loads(run([warpscope, "report", "--json", recording]).stdout)
    if "stalls" not in report:
        sys.exit(f"{name}: no samples: {report['notes']}")
    stalls = report["stalls"]
    print(f"{name}: {stalls['samples']} samples, {stalls['dropped']} dropped, {stalls['memory_bytes'] >> 20} MiB of device memory", flush=True)
    wrong = [f"{name}: {stalls['dropped']} samples were dropped"] if stalls["dropped"] else []
    wrong += instructions(warpscope, recording, name, stalls)
    return stalls, wrong


def instructions(warpscope, recording, name, stalls):
    """Prints the hottest instruction of each kernel with lines; returns what is wrong."""
    table = recording.with_suffix(".csv")
    run([warpscope, "export", recording, "--table", "instructions", "-o", table])
    with table.open(newline="") as rows:
        rows = list(csv.DictReader(rows))
    hottest = {}
    for row in rows:  # those with the most time first
        hottest.setdefault(row["kernel"], row)
    for kernel, row in hottest.items():
        print(f"  {kernel[:40]:<40} {row['instruction']:<56} {float(row['kernel_share']):6.1%} of its samples, {row['stall']}", flush=True)
    sampled = {line["kernel"] for line in stalls["lines"] if line["line"]}
    there = shutil.which("nvdisasm") or any(Path("/usr/local").glob("cuda*/bin/nvdisasm"))
    return [f"{name}: {kernel} has no instruction" for kernel in sorted(sampled - set(hottest))] if there else []


def compare(stalls):
    wrong = []
    for kernel, (number, right) in expected().items():
        lines = [line for line in stalls["lines"] if line["kernel"].split("(")[0] == kernel]
        if not lines:
            wrong.append(f"{kernel} has no samples")
            continue
        first = max(lines, key=lambda line: line["samples"])
        share = first["samples"] / sum(line["samples"] for line in lines)
        print(f"  {kernel:<10} {first['line']:<40} {share:6.1%} of its samples, {first['stall']:<20} expected: line {number}, {' or '.join(right)}")
        # The innermost inlined function comes last; the marked line is one of the frames.
        if right == ["any"]:
            continue
        if f"{SOURCE.name}:{number}" not in first["line"]:
            wrong.append(f"{kernel}: most samples are at {first['line']}, not at line {number}")
        if first["stall"] not in right:
            wrong.append(f"{kernel}: {first['stall']}, not {' or '.join(right)}")
    return wrong


# The names of stalls in ncu's columns, where CUPTI has others.
NCU_NAMES = {
    "dispatch": "dispatch_stall", "imc": "imc_miss", "lg": "lg_throttle", "long_sb": "long_scoreboard", "math": "math_pipe_throttle",
    "mio": "mio_throttle", "no_inst": "no_instructions", "short_sb": "short_scoreboard", "sleep": "sleeping", "tex": "tex_throttle",
}


def ncu_stalls(program):
    """The samples by stall of each kernel's first run, by ncu's counters."""
    done = run(["ncu", "--csv", "--page", "source", "--section", "SourceCounters", program, "1"])
    if done.returncode:
        sys.exit(f"ncu failed: {done.stdout[-400:]}{done.stderr[-400:]}")
    kernels = {}
    for part in done.stdout.split('"Kernel Name","')[1:]:
        name, _, table = part.partition("\n")
        counts = kernels.setdefault(name.split("(")[0], collections.Counter())
        if counts:  # the same again: what was not issued, or another run
            continue
        for row in csv.DictReader(io.StringIO(table)):
            for column, value in row.items():
                if found := re.fullmatch(r"stall_(\w+)", column or ""):
                    counts[NCU_NAMES.get(found[1], found[1])] += int(value or 0)
    return kernels


def compare_with_ncu(options, out, program):
    """Prints each kernel's stalls beside ncu's; returns what is wrong."""
    lines = run([options.warpscope, "export", "--format", "jsonl", "-o", "-", out / "bottlenecks.wscope"]).stdout.splitlines()
    ours = {}
    for line in lines:
        if '"stallsamples"' in line:
            event = json.loads(line)
            ours.setdefault(event["function"].split("(")[0], collections.Counter())[event["reason"]] += event["count"]
    wrong = []
    for kernel, counts in ncu_stalls(program).items():
        mine = ours.get(kernel, collections.Counter())
        shares = [{name: count / max(1, sum(of.values())) for name, count in of.items()} for of in (mine, counts)]
        different = sum(abs(shares[0].get(name, 0) - shares[1].get(name, 0)) for name in mine | counts) / 2
        text = ", ".join(f"{name} {shares[0].get(name, 0):.1%} (ncu {shares[1][name]:.1%})" for name, _ in counts.most_common(3))
        print(f"  {kernel:<10} {text}; in all {different:.1%} of the samples have another stall", flush=True)
        if not mine or mine.most_common(1)[0][0] != counts.most_common(1)[0][0]:
            wrong.append(f"{kernel}: {mine.most_common(1)}, but ncu says {counts.most_common(1)}")
    return wrong


def beside_another(options, out, program):
    """Records stalls while another process samples the counters; returns what is wrong."""
    holder = subprocess.Popen([options.warpscope, "sample-counters", "driver", CUPTI], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    # Its first record declares the GPU: sampling has begun.
    if not holder.stdout.read(64):
        sys.exit("counters cannot be sampled")
    recording = out / "beside.wscope"
    run([options.warpscope, "record", "--as-root", "--gpu-only", "--stalls", "-o", recording, "--", program, "40"])
    holder.stdin.close()
    holder.stdout.read()
    holder.wait()
    report = json.loads(run([options.warpscope, "report", "--json", recording]).stdout)
    print(f"while another tool uses the counters: {report['matched']} of {report['launches']} launches matched; {report['notes']}", flush=True)
    notes = [note for note in report["notes"] if note.startswith("no stall reasons: another tool")]
    right = notes and report["launches"] >= 280 and report["matched"] == report["launches"]
    return [] if right else ["the counters of another tool spoilt a recording"]


def while_threads_launch(options, out):
    """Records a program whose threads launch all the time, for two seconds; returns what is wrong."""
    program, recording = out / "paths", out / "threads.wscope"
    built = run(["nvcc", "-O2", "-arch=native", "-o", program, ROOT / "bench/programs/paths.cu"])
    if built.returncode:
        sys.exit(f"cannot compile paths.cu: {built.stderr}")
    command = [options.warpscope, "record", "--as-root", "--gpu-only", "--stalls", "-d", "2", "-o", recording, "--", program, "600000"]
    # The program would run for some seconds more; if sampling waits for a thread that launches, neither ends.
    try:
        done = run(command, timeout=90)
    except subprocess.TimeoutExpired:
        return ["the end of a recording while threads launch waits for ever"]
    report = json.loads(run([options.warpscope, "report", "--json", recording]).stdout)
    samples = report.get("stalls", {}).get("samples", 0)
    print(f"ended while threads launch: {report['matched']} of {report['launches']} launches matched, {samples} samples", flush=True)
    right = done.returncode == 0 and samples and report["matched"] == report["launches"]
    return [] if right else [f"the end of a recording while threads launch: status {done.returncode}, {done.stderr[-300:]}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True, type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="warpscope-gpu-"))
    out.mkdir(parents=True, exist_ok=True)
    program = out / "bottlenecks"
    built = run(["nvcc", "-O2", "-lineinfo", "-arch=native", "-o", program, SOURCE])
    if built.returncode:
        sys.exit(f"cannot compile {SOURCE}: {built.stderr}")
    stalls, wrong = record(options.warpscope, out, "bottlenecks", [program, "40"])
    wrong += compare(stalls)
    if shutil.which("ncu"):
        wrong += compare_with_ncu(options, out, program)
    if CUPTI.exists():
        wrong += beside_another(options, out, program)
    wrong += while_threads_launch(options, out)
    stalls, lost = record(options.warpscope, out, "serialised", [program, "40"], "--stalls=serialised")
    wrong += lost + compare(stalls)
    if not stalls["serialised"] or stalls["without_launch"]:
        wrong.append(f"serialised: {stalls['serialised']}, {stalls['without_launch']} samples have no launch")
    if run([PYTHON, "-c", "import triton"]).returncode == 0:
        stalls, lost = record(options.warpscope, out, "triton", [PYTHON, EXAMPLES / "triton_add.py"])
        wrong += lost
        if not any("triton_add.py:" in line["line"] for line in stalls["lines"]):
            wrong.append(f"triton: no line of its Python source: {[line['line'] for line in stalls['lines']][:5]}")
    for text in wrong:
        print(f"WRONG: {text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
