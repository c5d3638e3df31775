"""A rank of a job: `train.py WORD` stands at the line that the word says, forever.

wait, poll, spin    in a reduction, waiting in the kernel, in a loop that sleeps, in a loop
broadcast           in another call
load, work, lock    elsewhere: asleep, computing, in front of a lock
steps               in a loop that reaches a barrier every 10 ms

With `worker` behind it, it starts a process that sleeps.
"""

import ctypes
import os
import sys
import threading
import time

from distributed_c10d import all_reduce, barrier, broadcast, ready


def load():
    ready(), time.sleep(1000)  # line of load


def work():
    ready()
    while True:
        sum(range(1000)), sum(range(1000))  # line of work


def enter(lock):
    ready(), lock.acquire()  # line of lock


def steps():
    ready()
    while True:
        barrier()  # line of steps


def main():
    word = sys.argv[1]
    if word in ("wait", "poll", "spin"):
        all_reduce(word)  # line of all_reduce
    elif word == "broadcast":
        broadcast()  # line of broadcast
    elif word == "lock":
        lock = threading.Lock()
        lock.acquire()
        enter(lock)
    else:
        {"load": load, "work": work, "steps": steps}[word]()


ctypes.CDLL("libcuda.so.1")
if "worker" in sys.argv and os.fork() == 0:
    time.sleep(1000)
main()
