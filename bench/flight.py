#!/usr/bin/env python3
"""Measures the memory of the flight recorder over time, at a steady rate of launches on the simulated GPU.

    sudo bench/flight.py --warpscope target/release/warpscope --seconds 3600 --rate 20000

One line every `--every` seconds: the time, the resident memory of warpscope, and its CPU time so far. At the end the program
takes one slow step, whose kernel has a name of its own, and `--on-slow` writes a dump. Prints whether all launches in the dump
are matched, whether the slow step is in it, what was lost, and how much memory grew after the window was full.
"""

import argparse
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "cuda.h"
static volatile sig_atomic_t slow;
static void request(int signal) { slow = signal; }
__attribute__((noinline)) int slow_step(CUfunction function) {
    struct timespec pause = {0, 300000000};
    int result = cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    nanosleep(&pause, NULL);
    return result;
}
int main(int argc, char **argv) {
    CUcontext context; CUmodule module; CUfunction function, special; struct timespec next;
    int rate = atoi(argv[1]);
    signal(SIGUSR2, request);
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuModuleLoadData(&module, "")) return 1;
    if (cuModuleGetFunction(&function, module, "steady")) return 1;
    if (cuModuleGetFunction(&special, module, "slow")) return 1;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (;;) {
        for (int i = 0; i < rate / 100; i++)
            if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) return 1;
        if (slow) { slow = 0; if (slow_step(special)) return 1; clock_gettime(CLOCK_MONOTONIC, &next); }
        next.tv_nsec += 10000000;
        if (next.tv_nsec >= 1000000000) { next.tv_nsec -= 1000000000; next.tv_sec++; }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    }
}
"""


def use(pid):
    """Returns the resident memory in MiB, and the CPU time in seconds."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return kib / 1024, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description="Measure the memory of the flight recorder.")
    parser.add_argument("--warpscope", required=True, type=lambda path: Path(path).resolve())
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--rate", type=int, default=20_000)
    parser.add_argument("--last", type=int, default=30)
    parser.add_argument("--every", type=int, default=30)
    options = parser.parse_args()
    headers = Path(__file__).resolve().parent.parent / "tests/programs"
    with tempfile.TemporaryDirectory(prefix="warpscope-flight-") as directory:
        subprocess.run([options.warpscope, "sim", "--libs", f"{directory}/sim"], check=True)
        Path(f"{directory}/steady.c").write_text(PROGRAM)
        subprocess.run(["cc", "-O1", f"-I{headers}", "steady.c", "-o", "steady", "-Lsim", "-lcuda"], cwd=directory, check=True)
        command = [options.warpscope, "record", "--as-root", "--sim", "--last", f"{options.last}s", "-q", "-o", "x.wscope"]
        command += ["--on-slow", "slow_step > 200ms"]
        run = subprocess.Popen([*command, "--", "./steady", str(options.rate)], cwd=directory, start_new_session=True)
        begin, settled = time.monotonic(), None
        try:
            while (elapsed := time.monotonic() - begin) < options.seconds:
                time.sleep(min(options.every, options.seconds - elapsed))
                memory, cpu = use(run.pid)
                elapsed = time.monotonic() - begin
                if settled is None and elapsed > 2 * options.last:
                    settled = memory
                print(f"{elapsed:7.0f} s  {memory:7.1f} MiB  {cpu:7.1f} s of CPU time", flush=True)
            before, _ = use(run.pid)
            (child,) = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
            os.kill(int(child), signal.SIGUSR2)
            while not Path(f"{directory}/x.wscope").exists() and run.poll() is None:
                time.sleep(0.1)
        finally:
            os.killpg(run.pid, signal.SIGTERM)
            run.wait()
        report = subprocess.run([options.warpscope, "report", "--json", "x.wscope"], cwd=directory, check=True, capture_output=True)
        report = json.loads(report.stdout)
        lost = sum(report["lost"].values())
        slow = sum(kernel["count"] for kernel in report["top_kernels"] if kernel["name"] == "slow")
        per_second = report["launches"] / (report["wall_ns"] / 1e9)
        print(f"dump: {report['launches']} launches ({per_second:.0f} per second), {report['matched']} matched, {lost} lost")
        print(f"the slow step is {'' if slow == 1 else 'not '}in the dump")
        if settled is not None:
            print(f"memory after {2 * options.last} s: {settled:.1f} MiB, at the end: {before:.1f} MiB")


if __name__ == "__main__":
    main()
