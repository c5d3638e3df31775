"""A GPU that waits for its loader.

    idle.py ROUNDS

Launches a kernel and waits for it, then ROUNDS times: loads for 5 ms, launches and waits again.
"""
import sys
import time

from cudart import ONE, cudart, register

HOST = register("work")


def load():
    time.sleep(0.005)  # the GPU waits here


def batches(rounds):
    for _ in range(rounds):
        yield load()


def feed():
    assert cudart.cudaLaunchKernel(HOST, ONE, ONE, None, 0, None) == 0
    assert cudart.cudaDeviceSynchronize() == 0


def main():
    feed()
    for _ in batches(int(sys.argv[1])):
        feed()


main()
