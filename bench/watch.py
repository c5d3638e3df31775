"""Measures a running recording: the time of its BPF programs and of its own threads. Shared by the benchmarks.

While kernel.bpf_stats_enabled is on, the kernel counts how often and how long each BPF program runs, and shows it in
/proc/PID/fdinfo of the process that holds the program. Programs have no names there, but types.
"""

import contextlib
import threading
import time
from pathlib import Path

# enum bpf_prog_type: the launch program and the sampler are the only programs of their types.
LAUNCH = 2
SAMPLER = 7

STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")


@contextlib.contextmanager
def bpf_statistics():
    """Makes the kernel count the time of BPF programs, which adds about 20 ns to each run."""
    before = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield
    finally:
        STATISTICS.write_text(before)


def _fields(text):
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


class Reading:
    """Counters at one moment; the difference of two readings covers the time between them."""

    def __init__(self, seconds, bpf_ns, bpf_runs, cpu_ns):
        self.seconds, self.bpf_ns, self.bpf_runs, self.cpu_ns = seconds, bpf_ns, bpf_runs, cpu_ns

    def __sub__(self, earlier):
        return Reading(
            self.seconds - earlier.seconds,
            self.bpf_ns - earlier.bpf_ns,
            self.bpf_runs - earlier.bpf_runs,
            self.cpu_ns - earlier.cpu_ns,
        )


class Watch(threading.Thread):
    """Reads the counters of a process twenty times per second until it exits."""

    def __init__(self, pid, program_type):
        super().__init__(daemon=True)
        self.process = Path(f"/proc/{pid}")
        self.program_type = str(program_type)
        self.programs = []
        self.readings = []
        self.ended = threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(0.05):
            # An exiting process loses its files first, then its threads.
            with contextlib.suppress(OSError, ValueError, KeyError):
                self.programs = self.programs or self._find()
                if self.programs:
                    self.readings.append(self._read())

    def stop(self):
        """Returns the difference between the first and the last reading with a run; None if there are fewer than two."""
        self.ended.set()
        self.join()
        ran = [reading for reading in self.readings if reading.bpf_runs]
        return ran[-1] - ran[0] if len(ran) > 1 else None

    def _find(self):
        files = (self.process / "fdinfo").iterdir()
        return [file for file in files if _fields(file.read_text()).get("prog_type") == self.program_type]

    def _read(self):
        programs = [_fields(file.read_text()) for file in self.programs]
        threads = [(task / "schedstat").read_text() for task in (self.process / "task").iterdir()]
        return Reading(
            time.monotonic(),
            sum(int(program["run_time_ns"]) for program in programs),
            sum(int(program["run_cnt"]) for program in programs),
            sum(int(thread.split()[0]) for thread in threads),
        )
