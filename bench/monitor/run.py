#!/usr/bin/env python3
"""Measures the cost of a call under `warpscope monitor`: the same loop without probes, with empty probes, and monitored.

    bench/monitor/run.py --gpu --warpscope target/release/warpscope       the real libcuda; needs cc, root
    bench/monitor/run.py --sim --warpscope target/release/warpscope       the simulated GPU's libcuda

The modes run alternately, so that a machine that slows down affects all of them equally. Prints medians, the time that
the monitor adds to a call, and the ratio. A round in which the monitor did not count every call is an error, not a fast round.
"""

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed_call import FUNCTION, Loop, add_arguments, print_table  # noqa: E402
from processes import BenchError, Monitor  # noqa: E402


@contextlib.contextmanager
def pilot(environment):
    """Runs a process with libcuda mapped, so that a monitor that starts meanwhile monitors the library at once."""
    text = "import ctypes; ctypes.CDLL('libcuda.so.1'); print('ready', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", text], env=environment, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    try:
        yield
    finally:
        process.communicate("\n")


def counted_calls(text):
    """Returns the counted calls of the function, for all processes named `loop`."""
    pattern = rf'^warpscope_call_duration_seconds_count\{{[^}}]*comm="loop"[^}}]*function="{FUNCTION}"\}} (\d+)'
    return sum(int(count) for count in re.findall(pattern, text, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, 500_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        loop = Loop(arguments, Path(name))

        def monitored():
            with pilot(loop.environment), Monitor(arguments.warpscope) as monitor:
                time, counted = loop.probed(), counted_calls(monitor.scrape())
            if counted < loop.made:
                raise BenchError(f"{loop.made} calls were made, {counted} were counted")
            return time

        modes = {"not monitored": loop.alone, "empty probes": loop.with_empty_probes, "monitored": monitored}
        print_table(loop, modes, "monitored")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"bench/monitor: {error}")
