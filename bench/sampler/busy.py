"""Keeps every CPU busy below some Python frames and prints how much work it did.

    busy.py SECONDS DEPTH         prints "rounds N", the total of all processes

One process per CPU, because only one thread of an interpreter runs at a time.
"""
import os
import sys
import time


def spin(value):
    for _ in range(1000):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


def work(seconds):
    end = time.monotonic() + seconds
    value, rounds = 1, 0
    while time.monotonic() < end:
        value = spin(value)
        rounds += 1
    return rounds


def descend(left, seconds):
    if left > 1:
        return descend(left - 1, seconds)
    return work(seconds)


def main(seconds, depth):
    children = []
    for _ in range(os.cpu_count()):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.write(writer, b"%d" % descend(depth, seconds))
            os._exit(0)
        os.close(writer)
        children.append(reader)
    print("rounds", sum(int(os.read(reader, 32)) for reader in children))


main(float(sys.argv[1]), int(sys.argv[2]))
