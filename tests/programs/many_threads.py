"""Launches a kernel on a thread that was started before 70,000 others started and ended, and another on a thread that was started
after them."""
import ctypes
import sys
import threading

from cudart import ONE, cudart, register

MANY = 70000


def work(name):
    if cudart.cudaLaunchKernel(register(name), ONE, ONE, None, 0, None):
        sys.exit(3)
    cudart.cudaDeviceSynchronize()


def wait(name, others):
    others.wait()
    work(name)


def many():
    # Threads that run no Python take little time.
    libc, thread = ctypes.CDLL(None), ctypes.c_ulong()
    for _ in range(MANY):
        if libc.pthread_create(ctypes.byref(thread), None, libc.getpid, None) or libc.pthread_join(thread, None):
            sys.exit(4)


def first(others):
    thread = threading.Thread(target=wait, args=("early", others))
    thread.start()
    return thread


def last(others):
    thread = threading.Thread(target=wait, args=("late", others))
    thread.start()
    return thread


work("main")
ended = threading.Event()
threads = [first(ended)]
many()
threads.append(last(ended))
ended.set()
for thread in threads:
    thread.join()
