#!/usr/bin/env python3
"""Measures the cost of a call under `warpscope monitor`: the same loop without probes, with empty probes, and monitored.

    bench/monitor/run.py --gpu --warpscope target/release/warpscope       the real libcuda; needs cc, root
    bench/monitor/run.py --sim --warpscope target/release/warpscope       the simulated GPU's libcuda

The modes run alternately, so that a machine that slows down affects all of them equally. Prints medians, the time that
the monitor adds to a call, and the ratio. A round in which the monitor did not count every call is an error, not a fast round.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from probed_call import FUNCTION, BenchError, Loop, add_arguments, print_table


class Monitor:
    """A monitor that runs for one round. A process with libcuda mapped is started first, so that the library is monitored at once."""

    def __init__(self, warpscope, environment):
        text = "import ctypes; ctypes.CDLL('libcuda.so.1'); print('ready', flush=True); input()"
        self.pilot = subprocess.Popen([sys.executable, "-c", text], env=environment, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.pilot.stdout.readline()
        command = [warpscope, "monitor", "--metrics-addr", "127.0.0.1:0", "--display-interval", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.address = None
        for line in self.process.stderr:
            found = re.search(r"metrics on (http://\S+)", line)
            if found:
                self.address = found.group(1)
                break
        if not self.address:
            raise BenchError(f"the monitor did not start: exit status {self.process.wait()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait()
        self.pilot.communicate("\n")

    def counted(self):
        """Returns the counted calls of the function, for all processes named `loop`."""
        with urllib.request.urlopen(self.address) as answer:
            text = answer.read().decode()
        pattern = rf'^warpscope_call_duration_seconds_count\{{[^}}]*comm="loop"[^}}]*function="{FUNCTION}"\}} (\d+)'
        return sum(int(count) for count in re.findall(pattern, text, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, 500_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        loop = Loop(arguments, Path(name))

        def watched():
            with Monitor(arguments.warpscope, loop.environment) as monitor:
                time, counted = loop.watched(), monitor.counted()
            if counted < loop.made:
                raise BenchError(f"{loop.made} calls were made, {counted} were counted")
            return time

        modes = {"unwatched": loop.alone, "empty probes": loop.with_empty_probes, "watched": watched}
        print_table(loop, modes, "watched")


if __name__ == "__main__":
    try:
        main()
    except BenchError as error:
        sys.exit(f"monitor: {error}")
