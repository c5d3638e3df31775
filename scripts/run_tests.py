#!/usr/bin/python3
"""Runs a test program, and ends it if it hangs: `./test` must report which test it was, not wait for ever.

Usage: run_tests.py PROGRAM [ARGUMENT...]. This is cargo's runner in `./test`. A program hangs if nothing was printed for so
long that every test has run into its own limits (`tests/support/running.rs`). WARPSCOPE_TEST_LIMIT sets the seconds.
"""

import os
import re
import selectors
import subprocess
import sys
import time

LIMIT = float(os.environ.get("WARPSCOPE_TEST_LIMIT", 600))
# What the test harness prints about each test: the former after a minute, the latter at the end.
SLOW = re.compile(rb"^test (\S+) has been running for over ", re.M)
ENDED = re.compile(rb"^test (\S+) \.\.\. \w", re.M)


def follow(program):
    """Copies the program's output until it ends. Returns all of it, and whether the program ended."""
    output = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(program.stdout, selectors.EVENT_READ)
        printed = time.monotonic()
        # A process that a test left behind may keep the pipe open after the end, so this also watches the program.
        while True:
            ended = program.poll() is not None
            if selector.select(0 if ended else 1):
                piece = os.read(program.stdout.fileno(), 1 << 16)
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
                output += piece
                printed = time.monotonic()
                if piece:
                    continue
                program.wait()
                return output, True
            if ended:
                return output, True
            if time.monotonic() - printed > LIMIT and program.poll() is None:
                return output, False


def main():
    program = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
    try:
        output, ended = follow(program)
    except KeyboardInterrupt:
        program.kill()
        sys.exit(130)
    if ended:
        status = program.returncode
        sys.exit(status if status >= 0 else 128 - status)
    program.kill()
    program.wait()
    done = set(ENDED.findall(output))
    hung = [name.decode() for name in SLOW.findall(output) if name not in done]
    print(f"run_tests.py: {sys.argv[1]} printed nothing for {LIMIT:.0f} s and was ended. These tests still ran:",
          *(hung or ["(none took a minute)"]), sep="\n  ", file=sys.stderr)
    sys.exit(124)


def self_test():
    """Check the exit status of programs that end, also if a child keeps the pipe open, and the end of one that hangs."""
    def run(script):
        command = [sys.executable, __file__, "sh", "-c", script]
        environment = {**os.environ, "WARPSCOPE_TEST_LIMIT": "1"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert run("exit 3").returncode == 3
    assert run("kill -9 $$").returncode == 137
    left = run("sleep 20 2>/dev/null & echo started")
    assert (left.returncode, left.stdout) == (0, "started\n"), left
    slow = "has been running for over 60 seconds"
    hung = run(f"echo 'test a::b {slow}'; echo 'test c::d {slow}'; echo 'test a::b ... ok'; exec sleep 20")
    assert hung.returncode == 124 and hung.stderr.endswith("These tests still ran:\n  c::d\n"), hung


if __name__ == "__main__":
    self_test() if sys.argv[1:] == ["--self-test"] else main()
