#!/usr/bin/env python3
"""Measures the cost of unwind tables: of a program with many imports, or of all shared libraries below a directory.

    sudo bench/tables/run.py --warpscope target/release/warpscope --import torch [--python python3.12]
    sudo bench/tables/run.py --warpscope target/release/warpscope --directory /usr/local/cuda/lib64

The program prints when it is ready and then waits until all tables are built, that is until the thread that builds them
sleeps. It runs alternately bare and under `warpscope record --cpu-only -v`, so that its start-up times can be compared.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from processes import BenchError  # noqa: E402

THREAD = "unwind-tables"
IDLE = "import sys; print('ready 0', flush=True); sys.stdin.read()"
IMPORT = "import sys, time; t = time.monotonic(); import {}; print('ready %.3f' % (time.monotonic() - t), flush=True); sys.stdin.read()"


class Program:
    """A program that prints when it is ready and exits when its input ends."""

    def __init__(self, command):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.command = [str(part) for part in command]
        self.begin = time.monotonic()
        self.process = subprocess.Popen(self.command, text=True, **pipes)
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            out, err = self.process.communicate()
            raise BenchError(f"{' '.join(self.command)}: not ready\n{line}{out}{err}")
        self.ready = float(line.split()[1])

    def end(self):
        """Waits for the program to exit and returns its standard error."""
        _, err = self.process.communicate()
        if self.process.returncode != 0:
            raise BenchError(f"exit status {self.process.returncode}: {' '.join(self.command)}\n{err}")
        return err


def wait_for_tables(pid):
    """Waits until the thread that builds tables sleeps and has used no CPU time for half a second. Returns when that began."""
    tasks = Path(f"/proc/{pid}/task")
    task = next((task for task in tasks.iterdir() if (task / "comm").read_text().strip() == THREAD), None)
    if task is None:
        raise BenchError(f"warpscope has no thread {THREAD}")
    used, since = None, time.monotonic()
    while True:
        sleeps = (task / "stat").read_text().rpartition(")")[2].split()[0] == "S"
        now = (task / "schedstat").read_text().split()[0]
        if not sleeps or now != used:
            used, since = now, time.monotonic()
        elif time.monotonic() - since > 0.5:
            return since
        time.sleep(0.02)


def peak_mib(pid):
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found.group(1)) / 1024


def recorded(arguments, command, directory):
    options = ["--cpu-only", "--as-root", "-v", "-o", Path(directory) / "tables.wscope"]
    program = Program([arguments.warpscope, "record", *options, "--", *command])
    made = wait_for_tables(program.process.pid)
    peak = peak_mib(program.process.pid)
    found = re.search(r"unwind tables of (\d+) files have (\d+) rows \(([\d.]+) MiB\) and took ([\d.]+) s", program.end())
    if not found:
        raise BenchError("warpscope -v printed nothing about unwind tables")
    return {
        "ready_s": program.ready,
        "files": int(found.group(1)),
        "rows": int(found.group(2)),
        "rows_mib": float(found.group(3)),
        "cpu_s": float(found.group(4)),
        "made_after_s": made - program.begin,
        "peak_mib": peak,
    }


def bare(command):
    program = Program(command)
    program.end()
    return {"bare_ready_s": program.ready}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measure the cost of unwind tables.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--import", dest="module", help="everything that importing this Python module maps")
    what.add_argument("--directory", help="all shared libraries below this directory")
    parser.add_argument("--warpscope", required=True, help="the warpscope program to measure")
    parser.add_argument("--python", default="python3", help="the interpreter that imports")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    arguments = parser.parse_args()
    arguments.warpscope = os.path.abspath(arguments.warpscope)
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.directory:
        command = [arguments.python, HERE / "map_all.py", arguments.directory]
    else:
        command = [arguments.python, "-c", IMPORT.format(arguments.module)]
    # The first run fills the page cache.
    bare(command)
    rounds = []
    with tempfile.TemporaryDirectory(prefix="warpscope-tables-") as directory:
        idle = recorded(arguments, [arguments.python, "-c", IDLE], directory)["peak_mib"]
        for _ in range(arguments.rounds):
            rounds.append({**bare(command), **recorded(arguments, command, directory), "idle_mib": idle})
    if arguments.json:
        print(json.dumps(rounds, indent=2))
        return
    names = {
        "files": "files with a table",
        "rows": "rows",
        "rows_mib": "rows, MiB",
        "peak_mib": "warpscope's peak memory, MiB",
        "idle_mib": "the same for an idle Python, MiB",
        "cpu_s": "CPU time for tables, s",
        "made_after_s": "all built after, s",
        "ready_s": "program ready after, recorded, s",
        "bare_ready_s": "program ready after, bare, s",
    }
    for key, name in names.items():
        values = [row[key] for row in rounds]
        median, least, most = (f"{round(f(values), 3):,}" for f in (statistics.median, min, max))
        print(f"{name:<34}{median:>12}   {least}..{most}")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/tables: {error}")
