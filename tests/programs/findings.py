"""A GPU that waits for Python, for a known reason.

    findings.py REASON ROUNDS

Launches a kernel and waits for it, then ROUNDS times: does what the REASON says, launches and waits again. At the end, prints
when each function ran: `THREAD FUNCTION START END`, by CLOCK_MONOTONIC.
"""
import functools
import gc
import queue
import sys
import threading
import time

from cudart import cudart, Dim3, register

HOST = register("work")
notes = []


def noted(function):
    @functools.wraps(function)
    def run(*arguments):
        start = time.monotonic_ns()
        try:
            return function(*arguments)
        finally:
            notes.append((function.__name__, start, time.monotonic_ns()))
    return run


@noted
def nap():
    time.sleep(0.006)  # sleeps


@noted
def decode():
    end = time.thread_time() + 0.006
    while time.thread_time() < end: pass  # computes


class Garbage:
    """A circle, which only the collector can free."""

    def __init__(self):
        self.itself = self


@noted
def make():
    return [Garbage() for _ in range(20000)]


@noted
def collect():
    gc.collect()  # frees circles


batches, wanted = queue.Queue(), queue.Queue()
lock, locked = threading.Lock(), threading.Event()


@noted
def next_batch():
    wanted.put(True)
    return batches.get()  # waits for a batch


def produce():
    while wanted.get():
        time.sleep(0.006)
        batches.put(True)


@noted
def borrow():
    with lock: pass  # waits for the lock


def lend():
    while wanted.get():
        with lock:
            locked.set()
            time.sleep(0.006)


def contend():
    wanted.put(True)
    locked.wait()
    locked.clear()
    borrow()


def discard():
    del make()[:]
    collect()


REASONS = {"nap": nap, "decode": decode, "collect": discard, "queue": next_batch, "lock": contend}
OTHERS = {"queue": produce, "lock": lend}


def feed():
    # Whole waves on any GPU.
    assert cudart.cudaLaunchKernel(HOST, Dim3(132 * 8 * 4, 1, 1), Dim3(256, 1, 1), None, 0, None) == 0
    assert cudart.cudaDeviceSynchronize() == 0


def main(reason, rounds):
    gc.disable()
    other = threading.Thread(target=OTHERS.get(reason, lambda: None))
    other.start()
    feed()
    for _ in range(rounds):
        REASONS[reason]()
        feed()
    wanted.put(False)
    other.join()
    for name, start, end in notes:
        print(0, name, start, end)


main(sys.argv[1], int(sys.argv[2]))
