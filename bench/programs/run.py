#!/usr/bin/env python3
"""Measures the cost of warpscope for real programs: each runs bare, under bare CUPTI, under warpscope's commands and under torch.profiler.

    sudo bench/programs/run.py --gpu --warpscope target/release/warpscope            a real GPU, PyTorch, nvcc
    sudo bench/programs/run.py --sim --warpscope target/release/warpscope            the simulated GPU: the C++ program only
    sudo bench/programs/run.py --gpu --warpscope ... --program train_small --tool record --tool monitor --rounds 7

All tools run alternately within a round, and each round starts with a different one, so that a machine that slows down affects
all of them equally. The table has the median time of a step with minimum and maximum, and the ratio to bare. Only the steps
after the warm-up count. The last column is warpscope's own estimate of the ratio to bare, from the cost in its report. `--bpf`
adds a run with the kernel's BPF statistics enabled and prints the BPF time per launch, and how many launches had a stack that
their thread recognised, so that nothing was walked.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import watch  # noqa: E402
from processes import BenchError, Monitor, call  # noqa: E402

PYTHON = ["train_small", "decode", "train_large", "graph", "ranges"]
PROGRAMS = [*PYTHON, "paths"]
RECORD, TRACE = ["record", "--as-root", "-q"], ["trace", "--as-root", "-q"]
VERBOSE = ["record", "--as-root", "-v"]
TOOLS = {
    "bare": None,
    "bare CUPTI": None,
    "record": [*RECORD, "-o", "OUT.wscope"],
    "record --gpu-only": [*RECORD, "--gpu-only", "-o", "OUT.wscope"],
    "record --no-handover": [*RECORD, "--no-handover", "-o", "OUT.wscope"],
    "record --off-cpu": [*RECORD, "--off-cpu", "-o", "OUT.wscope"],
    "record --nvtx": [*RECORD, "--nvtx", "-o", "OUT.wscope"],
    "record --memory": [*RECORD, "--memory", "-o", "OUT.wscope"],
    "record --max-overhead 3": [*RECORD, "--max-overhead", "3", "-o", "OUT.wscope"],
    "record --stalls": [*RECORD, "--stalls", "-o", "OUT.wscope"],
    "record --counters": [*RECORD, "--counters", "-o", "OUT.wscope"],
    "trace": [*TRACE, "-o", "OUT.wscope"],
    "trace --calls-from cupti": [*TRACE, "--calls-from", "cupti", "-o", "OUT.wscope"],
    "trace --summary-only": [*TRACE, "--summary-only", "-o", "OUT.wscope"],
    "monitor": None,
    "torch.profiler": None,
    "torch.profiler, stacks": None,
}


class Bench:
    """The programs, compiled if necessary, and one run of each under each tool."""

    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.injector = directory / "bare_cupti.so"
        call(["cc", "-O2", "-shared", "-fPIC", "-o", self.injector, HERE.parent / "launch/bare_cupti.c", "-lpthread", "-ldl"])
        self.environment = {k: v for k, v in os.environ.items() if k != "CUDA_INJECTION64_PATH"}
        if "paths" in options.program:
            self.build_paths()

    def build_paths(self):
        target, source = self.directory / "paths", HERE / "paths.cu"
        if self.options.gpu:
            nvcc = next((n for n in ["nvcc", "/usr/local/cuda/bin/nvcc"] if subprocess.run(["which", n], capture_output=True).returncode == 0), None)
            if not nvcc:
                raise BenchError("nvcc is missing: use --program to select programs other than `paths`")
            call([nvcc, "-O2", "-std=c++17", "-arch=native", "-o", target, source])
            return
        libraries = self.directory / "sim"
        call([self.options.warpscope, "sim", "--libs", libraries])
        cudart = sorted(libraries.glob("libcudart.so.*"))[-1]
        call(["c++", "-O2", "-std=c++17", "-DWARPSCOPE_SIMULATOR", "-x", "c++", source, "-x", "none", "-o", target, cudart,
              "-Wl,--allow-shlib-undefined", "-lpthread"])
        self.environment["LD_LIBRARY_PATH"] = str(libraries)
        self.environment["WARPSCOPE_CUPTI"] = str(sorted(libraries.glob("libcupti.so.*"))[-1])

    def command(self, program):
        if program == "paths":
            return [self.directory / "paths", *(["20000", "2"] if self.options.sim else [])]
        return [sys.executable, HERE / f"{program}.py"]

    def run(self, program, tool, started=lambda pid: None):
        """Returns the microseconds and the launches of one step, and the tool's own estimate of its ratio to bare."""
        command, environment = self.command(program), dict(self.environment)
        if tool == "bare CUPTI":
            environment["CUDA_INJECTION64_PATH"] = str(self.injector)
        elif tool.startswith("torch.profiler"):
            if program not in PYTHON:
                return None
            command += ["--profiler", "stacks" if "stacks" in tool else "plain"]
        elif tool == "monitor":
            with Monitor(self.options.warpscope) as monitor:
                monitor.scrape()
                return *result(call(command, environment)), None
        elif TOOLS[tool]:
            own = [part.replace("OUT", str(self.directory / "out")) for part in TOOLS[tool]]
            command = [self.options.warpscope, *own, *self.options.option, "--", *command]
        us, launches = result(call(command, environment, started=started))
        return us, launches, self.estimate(us, launches) if TOOLS[tool] else None

    def estimate(self, us, launches):
        """Returns the ratio to bare according to the recording that was just made; None if it does not say. Only what runs within
        launches counts."""
        report = json.loads(call([self.options.warpscope, "report", "--json", self.directory / "out.wscope"]))
        cost, recorded = report.get("cost"), report["launches"]
        if not cost or not recorded:
            return None
        own = cost["delay_ns"] / 1000 / recorded * launches
        return us / (us - own) if own < us else None

def result(output):
    found = re.search(r"^us_per_step ([0-9.]+) launches_per_step (\d+)$", output, re.MULTILINE)
    if not found:
        raise BenchError(f"the program printed no us_per_step:\n{output}")
    return float(found.group(1)), int(found.group(2))


def measure(bench, program, tools, rounds):
    times, estimates = {tool: [] for tool in tools}, {tool: [] for tool in tools}
    launches = 0
    for turn in range(rounds):
        first = turn % len(tools)
        for tool in tools[first:] + tools[:first]:
            measured = bench.run(program, tool)
            if measured is None:
                continue
            times[tool].append(measured[0])
            launches = measured[1]
            estimates[tool] += [measured[2]] if measured[2] else []
            print(f"{program} {turn + 1}/{rounds}: {tool} {measured[0]:.1f} us", file=sys.stderr, flush=True)
    own = {tool: values for tool, values in estimates.items() if values}
    return {"launches_per_step": launches, "us_per_step": {tool: values for tool, values in times.items() if values}, "own_estimate": own}


def bpf_time(bench, program):
    """Returns the BPF time per launch under `record`, and how many launches had a stack that their thread recognised."""
    watched = []
    own = [*VERBOSE, *bench.options.option, "-o", bench.directory / "out.wscope"]
    command = [bench.options.warpscope, *own, "--", *bench.command(program)]
    with watch.bpf_statistics():
        output = call(
            command, bench.environment, started=lambda pid: watched.append(watch.Watch(pid, watch.LAUNCH)), stderr=subprocess.STDOUT
        )
        counted = watched[0].stop()
    figures = {}
    if counted is not None and counted.bpf_runs:
        figures["bpf_ns"] = counted.bpf_ns / counted.bpf_runs
    found = re.search(r"recognised the stacks of (\d+) of (\d+) launches", output)
    if found:
        figures["recognised"], figures["launches"] = int(found.group(1)), int(found.group(2))
    return figures


def table(program, measured):
    times = measured["us_per_step"]
    bare = statistics.median(times["bare"]) if "bare" in times else None
    cupti = statistics.median(times["bare CUPTI"]) if "bare CUPTI" in times else None
    lines = [f"{program}: {measured['launches_per_step']} launches per step", f"{'':<24}{'us per step':>12}  {'min..max':>22}{'to bare':>9}{'to CUPTI':>9}{'own est.':>9}"]
    for tool, values in times.items():
        median = statistics.median(values)
        ratios = "".join(f"{median / base:>9.3f}" if base else f"{'-':>9}" for base in (bare, cupti))
        own = measured["own_estimate"].get(tool)
        ratios += f"{statistics.median(own):>9.3f}" if own else f"{'-':>9}"
        lines.append(f"{tool:<24}{median:>12.1f}  {f'{min(values):.1f}..{max(values):.1f}':>22}{ratios}")
    for base in ("bare", "bare CUPTI"):
        for tool, values in times.items():
            if tool != base and tool != "bare" and base in times and len(values) == len(times[base]):
                rounds = [value / other for value, other in zip(values, times[base])]
                by_round = " ".join(f"{ratio:.2f}" for ratio in rounds)
                lines.append(f"{tool} to {base}, by round: {by_round}; median {statistics.median(rounds):.3f}")
    if measured.get("bpf_ns"):
        lines.append(f"BPF time per launch under record: {measured['bpf_ns']:.0f} ns")
    if measured.get("launches"):
        share = 100 * measured["recognised"] / measured["launches"]
        lines.append(f"stacks recognised by their thread: {measured['recognised']} of {measured['launches']} launches, {share:.2f} %")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure the cost of warpscope for real programs.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--gpu", action="store_true", help="use a real GPU")
    where.add_argument("--sim", action="store_true", help="use the simulated GPU")
    parser.add_argument("--warpscope", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="run only this program; may be repeated")
    parser.add_argument("--tool", action="append", choices=list(TOOLS), help="run only this tool, besides bare; may be repeated")
    parser.add_argument("--option", action="append", default=[], help="additional option for record and trace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bpf", action="store_true", help="also measure the BPF time per launch and the share of recognised stacks")
    parser.add_argument("--json", type=Path, help="write every sample to this file as it is measured")
    options = parser.parse_args()
    options.program = options.program or (["paths"] if options.sim else PROGRAMS)
    if options.sim and options.program != ["paths"]:
        parser.error("the simulated GPU runs only `paths`")
    return options


def main():
    options = parse_arguments()
    tools = [tool for tool in TOOLS if not options.tool or tool == "bare" or tool in options.tool]
    everything = {}
    with tempfile.TemporaryDirectory(prefix="warpscope-programs-") as directory:
        bench = Bench(options, Path(directory))
        for program in options.program:
            everything[program] = measure(bench, program, tools, options.rounds)
            if options.bpf:
                everything[program].update(bpf_time(bench, program))
            print(table(program, everything[program]) + "\n", flush=True)
            if options.json:
                options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/programs: {error}")
