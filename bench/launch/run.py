#!/usr/bin/env python3
"""Measures the cost of a kernel launch: bare, under bare CUPTI activity, and under `warpscope record --gpu-only`.

    bench/launch/run.py --gpu --warpscope target/release/warpscope       a real GPU; needs nvcc, libcupti, root
    bench/launch/run.py --sim --warpscope target/release/warpscope       the simulated GPU; needs cc, root
    bench/launch/run.py --sim --warpscope ... --python python3.12        the same loop entered from Python
    bench/launch/run.py --sim --warpscope NEW --baseline OLD             also under another build of warpscope
    bench/launch/run.py --sim --warpscope ... --paths 300                from 300 call paths with the same registers

All run alternately, so that a machine that slows down affects all of them equally. Prints medians. A round whose
profiler recorded nothing is an error, not a fast round.
"""

import argparse
import contextlib
import glob
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import watch  # noqa: E402
from processes import BenchError, call  # noqa: E402



def find_compiler(names):
    for name in names:
        found = name and shutil.which(name)
        if found:
            return found
    raise BenchError(f"none of these was found: {', '.join(name for name in names if name)}")


def newest(directory, stem):
    """Returns the library `stem` with the highest version in a directory."""

    def version(path):
        return [int(part) for part in re.findall(r"\d+", path.rsplit(".so", 1)[1])]

    found = sorted(glob.glob(os.path.join(directory, stem + ".so*")), key=version)
    if not found:
        raise BenchError(f"no {stem}.so* in {directory}")
    return found[-1]


def build_injector(directory):
    compiler = find_compiler([os.environ.get("CC"), "cc", "gcc", "clang"])
    target = directory / "bare_cupti.so"
    call([compiler, "-O2", "-shared", "-fPIC", "-o", target, HERE / "bare_cupti.c", "-lpthread", "-ldl"])
    return target


def build_for_gpu(directory, library):
    compiler = find_compiler([os.environ.get("NVCC"), "nvcc", "/usr/local/cuda/bin/nvcc"])
    target = directory / ("launch.so" if library else "launch")
    options = ["-shared", "-Xcompiler", "-fPIC"] if library else []
    options += ["-O3", "-std=c++17", f"-arch={os.environ.get('ARCH', 'native')}"]
    call([compiler, *options, "-o", target, HERE / "launch.cu"])
    return target, {}


def build_for_simulator(directory, library, warpscope):
    libraries = directory / "sim"
    libraries.mkdir()
    call([warpscope, "sim", "--libs", libraries])
    compiler = find_compiler([os.environ.get("CC"), "cc", "gcc", "clang"])
    target = directory / ("launch.so" if library else "launch")
    options = ["-shared", "-fPIC"] if library else []
    cudart = newest(libraries, "libcudart")
    # libcudart may need libcuda.so.1, which the program finds by LD_LIBRARY_PATH when it runs.
    call([compiler, *options, "-O2", "-o", target, HERE / "launch_sim.c", cudart, "-Wl,--allow-shlib-undefined"])
    return target, {"LD_LIBRARY_PATH": str(libraries), "WARPSCOPE_CUPTI": newest(libraries, "libcupti")}


def us_per_launch(output):
    found = re.search(r"^us_per_launch ([0-9.]+)$", output, re.MULTILINE)
    if not found:
        raise BenchError(f"the launch program printed no us_per_launch:\n{output}")
    return float(found.group(1))


class Bench:
    """The built programs, and one method per mode that runs it once."""

    def __init__(self, arguments, directory):
        self.arguments = arguments
        self.directory = directory
        self.injector = build_injector(directory)
        self.bpf_ns = []
        library = arguments.python is not None
        if arguments.sim:
            self.program, self.variables = build_for_simulator(directory, library, arguments.warpscope)
        else:
            self.program, self.variables = build_for_gpu(directory, library)

    def command(self):
        loop = [self.program, self.arguments.launches, self.arguments.depth, self.arguments.paths]
        if self.arguments.python is None:
            return loop
        return [self.arguments.python, HERE / "launch.py", *loop, "each" if self.arguments.each else "many"]

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if k not in ("CUDA_INJECTION64_PATH", "LD_PRELOAD")}
        if "LD_LIBRARY_PATH" in kept and "LD_LIBRARY_PATH" in self.variables:
            more["LD_LIBRARY_PATH"] = self.variables["LD_LIBRARY_PATH"] + ":" + kept["LD_LIBRARY_PATH"]
        return {**kept, **self.variables, **more}

    def run_bare(self):
        return us_per_launch(call(self.command(), self.environment()))

    def run_cupti(self):
        report = self.directory / "cupti.txt"
        report.unlink(missing_ok=True)
        environment = self.environment(CUDA_INJECTION64_PATH=str(self.injector), BARE_CUPTI_REPORT=str(report))
        result = us_per_launch(call(self.command(), environment))
        if not report.exists():
            raise BenchError("bare_cupti.so was not loaded: is CUDA_INJECTION64_PATH honoured here?")
        name, _, value = report.read_text().strip().partition(" ")
        if name != "kernels":
            raise BenchError(f"bare_cupti.so: {value}")
        if int(value) < self.arguments.launches:
            raise BenchError(f"bare_cupti.so saw {value} kernels of at least {self.arguments.launches}")
        return result

    def run_warpscope(self, warpscope):
        folded = self.directory / "warpscope.folded"
        folded.unlink(missing_ok=True)
        command = [warpscope, "record", "--gpu-only", "--as-root", "-q", "-o", folded]
        # `record --sim` puts the simulator's libraries in place itself.
        environment = self.environment()
        if self.arguments.sim:
            command.append("--sim")
            environment = {k: v for k, v in environment.items() if k not in self.variables or k in os.environ}
            environment.update({k: os.environ[k] for k in self.variables if k in os.environ})
        command += [*self.arguments.record_option, "--", *self.command()]
        if self.arguments.bpf_time:
            result = us_per_launch(call(command, environment, started=self.watch))
            counted = self.watched.stop()
            if counted is None or not counted.bpf_runs:
                raise BenchError("the run is too short to measure the BPF program's time: increase --launches")
            self.bpf_ns.append(counted.bpf_ns / counted.bpf_runs)
        else:
            result = us_per_launch(call(command, environment))
        stacks = folded.read_text(errors="replace") if folded.exists() else ""
        if "_Kernel] " not in stacks:
            raise BenchError("warpscope recorded no kernel")
        if self.arguments.python and "--no-python" not in self.arguments.record_option and "descend (launch.py:" not in stacks:
            raise BenchError("warpscope recorded no Python function")
        return result

    def watch(self, pid):
        self.watched = watch.Watch(pid, watch.LAUNCH)


    def modes(self):
        modes = {"bare": self.run_bare, "bare CUPTI": self.run_cupti}
        modes["warpscope"] = lambda: self.run_warpscope(self.arguments.warpscope)
        if self.arguments.baseline:
            modes["baseline"] = lambda: self.run_warpscope(self.arguments.baseline)
        return modes


def measure(modes, rounds):
    names = list(modes)
    samples = {mode: [] for mode in names}
    for turn in range(rounds):
        # Each mode is first, second and so on equally often.
        first = turn % len(names)
        for mode in names[first:] + names[:first]:
            samples[mode].append(modes[mode]())
            print(f"round {turn + 1}/{rounds}: {mode} {samples[mode][-1]:.3f} us", file=sys.stderr)
    return samples


def summarise(samples):
    medians = {mode: statistics.median(values) for mode, values in samples.items()}
    return {
        mode: {
            "median_us": medians[mode],
            "min_us": min(values),
            "max_us": max(values),
            "ratio_to_bare": medians[mode] / medians["bare"] if medians["bare"] > 0 else None,
            "over_bare_cupti_us": medians[mode] - medians["bare CUPTI"],
            "samples_us": values,
        }
        for mode, values in samples.items()
    }


def table(summary):
    lines = [f"{'':<12}{'median us':>10}  {'min..max us':>18}{'to bare':>9}{'to bare CUPTI':>16}"]
    for mode, row in summary.items():
        spread = f"{row['min_us']:.3f}..{row['max_us']:.3f}"
        ratio = f"{row['ratio_to_bare']:.2f}x" if row["ratio_to_bare"] is not None else "-"
        lines.append(f"{mode:<12}{row['median_us']:>10.3f}  {spread:>18}{ratio:>9}{row['over_bare_cupti_us']:>+13.3f} us")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure the cost of a kernel launch under warpscope.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--sim", action="store_true", help="use the simulated GPU (configured by WARPSCOPE_SIM)")
    where.add_argument("--gpu", action="store_true", help="use a real GPU")
    parser.add_argument("--warpscope", required=True, help="the warpscope program to measure")
    parser.add_argument("--baseline", help="another warpscope program, measured in the same rounds")
    parser.add_argument("--launches", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--python", metavar="PYTHON", help="enter the loop from Python, with this interpreter")
    parser.add_argument("--each", action="store_true", help="with --python: make one call from Python per launch")
    parser.add_argument("--paths", type=int, default=1, help="call paths that launch with the same registers; with --python, requires --each")
    parser.add_argument("--depth", type=int, help="frames above the launch loop: host frames (default 10) or Python frames (default 30)")
    parser.add_argument("--record-option", action="append", default=[], help="additional option for warpscope record")
    parser.add_argument("--bpf-time", action="store_true", help="also measure the time of the BPF program, which adds some overhead")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    if arguments.each and not arguments.python:
        parser.error("--each requires --python")
    if arguments.python and arguments.paths > 1 and not arguments.each:
        parser.error("--paths with --python requires --each")
    if arguments.depth is None:
        arguments.depth = 30 if arguments.python else 10
    if arguments.launches < 1 or arguments.rounds < 1 or not 0 <= arguments.depth <= 1000 or not 1 <= arguments.paths <= 1024:
        parser.error("launches and rounds must be at least 1, depth must be 0 to 1000, paths must be 1 to 1024")
    arguments.warpscope = os.path.abspath(arguments.warpscope)
    arguments.baseline = arguments.baseline and os.path.abspath(arguments.baseline)
    if arguments.baseline and arguments.bpf_time:
        parser.error("--bpf-time measures one program: omit --baseline")
    return arguments


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="warpscope-launch-") as directory:
        bench = Bench(arguments, Path(directory))
        with watch.bpf_statistics() if arguments.bpf_time else contextlib.nullcontext():
            summary = summarise(measure(bench.modes(), arguments.rounds))
    if arguments.json:
        settings = {
            "gpu": "simulated" if arguments.sim else "real",
            "launches": arguments.launches,
            "rounds": arguments.rounds,
            "depth": arguments.depth,
            "paths": arguments.paths,
            "python": arguments.python,
            "each": arguments.each,
        }
        print(json.dumps({**settings, "modes": summary, "bpf_ns": bench.bpf_ns}, indent=2))
    else:
        print(table(summary))
        if bench.bpf_ns:
            print(f"BPF program: {statistics.median(bench.bpf_ns):.0f} ns per launch, {min(bench.bpf_ns):.0f}..{max(bench.bpf_ns):.0f}")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/launch: {error}")
