#!/usr/bin/env python3
"""Measures the cost of the monitor at a steady rate of calls, and how much longer a scrape takes under load.

    bench/monitor/steady.py --warpscope target/release/warpscope [--seconds 20] [--processes 64]

Processes on the simulated GPU make 2,000 calls per second each while the monitor is scraped twice a second. Then dozens of libraries
are loaded and removed, as with short-lived containers, and the monitor releases them while it is scraped. Prints ratios
within one run: the monitor's CPU time to that of the monitored programs, and the scrape time under each load to that of an
idle machine. Requires root, cc, and an otherwise idle machine.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from processes import BenchError, Monitor  # noqa: E402

PROGRAMS = Path(__file__).resolve().parents[2] / "tests/programs"
RATE = 2_000
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def libraries_in(text):
    """Returns the number of monitored libraries according to a scrape."""
    return sum(int(count) for count in re.findall(r"^warpscope_watched_libraries\S* (\d+)", text, re.MULTILINE))


def timed_scrape(monitor):
    monitor.scrape()
    return monitor.scrape_seconds


class Program:
    """A program of tests/programs that prints `ready` and exits when its input ends."""

    def __init__(self, path, libraries, *arguments):
        environment = dict(os.environ, LD_LIBRARY_PATH=str(libraries))
        self.process = subprocess.Popen([path, *arguments], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def end(self):
        self.process.communicate("")


def compile_program(name, directory, libraries):
    made = directory / name
    subprocess.run(["cc", "-O1", "-g", PROGRAMS / f"{name}.c", "-o", made, f"-L{libraries}", "-lcudart", "-lcuda", "-pthread"],
                   check=True)
    return made


def steady(monitor, program, libraries, directory, arguments):
    go = directory / "go"
    programs = [Program(program, libraries, str(arguments.seconds), str(RATE), str(go)) for _ in range(arguments.processes)]
    # Names are looked up when a process is first seen.
    monitor.scrape()
    before = cpu_seconds(monitor.pid), sum(cpu_seconds(p.process.pid) for p in programs)
    go.touch()
    end, took = time.monotonic() + arguments.seconds, []
    while time.monotonic() < end:
        took.append(timed_scrape(monitor))
        time.sleep(0.5)
    for each in programs:
        each.process.stdout.readline()
    used = cpu_seconds(monitor.pid) - before[0]
    worked = sum(cpu_seconds(p.process.pid) for p in programs) - before[1]
    for each in programs:
        each.end()
    print(f"{arguments.processes} processes, {arguments.processes * RATE} calls/s for {arguments.seconds} s: the monitor used"
          f" {used:.2f} s of CPU time, the programs {worked:.2f} s, ratio {used / worked:.3f}")
    return took


def short_lived_libraries(monitor, program, libraries, directory):
    took, most = [], 0
    for number in range(40):
        copy = directory / f"lib{number}"
        copy.mkdir()
        for name in ("libcuda.so.1", "libcudart.so.13"):
            shutil.copy(libraries / name, copy / name)
        before = libraries_in(monitor.scrape())
        each = Program(program, copy)
        while True:
            now = libraries_in(monitor.scrape())
            took.append(monitor.scrape_seconds)
            most = max(most, now)
            if now >= before + 2 or now < before:
                break
        each.end()
        shutil.rmtree(copy)
    while now >= most // 2:
        now = libraries_in(monitor.scrape())
        took.append(monitor.scrape_seconds)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        libraries = directory / "sim"
        subprocess.run([arguments.warpscope, "sim", "--libs", libraries], check=True, stdout=subprocess.DEVNULL)
        watched, at_rate = (compile_program(name, directory, libraries) for name in ("watched", "steady"))
        monitor = Monitor(arguments.warpscope)
        pilot = Program(watched, libraries)
        idle = [timed_scrape(monitor) for _ in range(50)]
        loads = {
            "steady calls": steady(monitor, at_rate, libraries, directory, arguments),
            "short-lived libraries": short_lived_libraries(monitor, watched, libraries, directory),
        }
        pilot.end()
        monitor.stop()
    base = statistics.median(idle)
    print(f"{'scrapes':<24}{'median':>10}{'slowest':>10}{'ratio of medians':>18}{'slowest to idle':>17}")
    for what, took in {"idle": idle, **loads}.items():
        median, slowest = statistics.median(took), max(took)
        print(f"{what:<24}{median * 1e3:>7.1f} ms{slowest * 1e3:>7.1f} ms{median / base:>18.2f}{slowest / base:>17.2f}")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/monitor: {error}")
