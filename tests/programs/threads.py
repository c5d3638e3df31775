"""Launches kernels on threads: of `threading`, of a thread that such a thread starts, and of a pool. Each kernel is named after
how its thread got to run. The first kernel is launched on the main thread, before any thread is started.

    threads.py [LAUNCHES]   of each kernel"""
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from cudart import ONE, cudart, register

LAUNCHES = int(sys.argv[1]) if len(sys.argv) > 1 else 1


def work(name):
    host = register(name)
    for _ in range(LAUNCHES):
        if cudart.cudaLaunchKernel(host, ONE, ONE, None, 0, None):
            sys.exit(3)
    cudart.cudaDeviceSynchronize()


def starts():
    thread = threading.Thread(target=work, args=("started",))
    thread.start()
    thread.join()


def inner():
    thread = threading.Thread(target=work, args=("nested",))
    thread.start()
    thread.join()


def nests():
    thread = threading.Thread(target=inner)
    thread.start()
    thread.join()


def submits(pool):
    # The pool starts its thread here.
    pool.submit(work, "submitted").result()


def later(pool):
    pool.submit(work, "later").result()


work("main")
starts()
nests()
with ThreadPoolExecutor(1) as pool:
    submits(pool)
    later(pool)
