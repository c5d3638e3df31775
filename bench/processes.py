"""Runs commands and the monitor for the benchmarks."""

import re
import subprocess
import time
import urllib.request


class BenchError(Exception):
    """An error that the user can act on."""


def call(command, env=None, timeout=600, started=lambda pid: None, stderr=subprocess.PIPE):
    """Runs a command to completion and returns its standard output. `started` is called with its process id."""
    command = [str(part) for part in command]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": stderr}
    try:
        process = subprocess.Popen(command, env=env, text=True, errors="replace", **pipes)
    except OSError as error:
        raise BenchError(f"cannot run {command[0]}: {error.strerror}") from error
    started(process.pid)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise BenchError(f"took more than {timeout} s: {' '.join(command)}") from error
    if process.returncode != 0:
        raise BenchError(f"exit status {process.returncode}: {' '.join(command)}\n{out}{err or ''}".rstrip())
    return out


class Monitor:
    """`warpscope monitor` on a free port, without console output. As a context manager it is terminated at the end."""

    def __init__(self, warpscope, *options):
        command = [str(warpscope), "monitor", "--metrics-addr", "127.0.0.1:0", "--display-interval", "0", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.messages = ""
        self.scrape_seconds = None
        for line in self.process.stderr:
            self.messages += line
            found = re.search(r"metrics on (http://\S+)", line)
            if found:
                self.address = found.group(1)
                return
        raise BenchError(f"the monitor did not start: exit status {self.process.wait()}\n{self.messages}".rstrip())

    def scrape(self):
        """Returns the metrics as text and stores the time that took in `scrape_seconds`."""
        begin = time.monotonic()
        with urllib.request.urlopen(self.address, timeout=60) as answer:
            text = answer.read().decode()
        self.scrape_seconds = time.monotonic() - begin
        return text

    def stop(self):
        self.process.terminate()
        self.messages += self.process.stderr.read()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
