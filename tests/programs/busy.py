"""Keeps a CPU busy in known functions.

    busy.py SECONDS

The main thread and a second one call `spin` through a method, a generator and a callback of `sorted`; a forked child does the
same under `child`. Nearly all the time is spent in `spin`.
"""
import os
import sys
import threading
import time


def spin(count):
    total = 0
    for number in range(count):
        total += number * number
    return total


class Model:
    def step(self):
        return spin(3000)


def steps(model):
    for _ in range(10):
        yield model.step()


def work(seconds):
    model = Model()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(steps(model))
        sorted([2, 1], key=lambda _: spin(3000))


def child(seconds):
    work(seconds)


def main(seconds):
    pid = os.fork()
    if pid == 0:
        child(seconds)
        os._exit(0)
    thread = threading.Thread(target=work, args=(seconds,))
    thread.start()
    work(seconds)
    thread.join()
    os.waitpid(pid, 0)


main(float(sys.argv[1]))
