"""Stands for torch.distributed: calls that wait for other ranks, which never come."""

import os
import time


def ready():
    print("ready", flush=True)


def all_reduce(how):
    ready()
    if how == "wait":
        os.read(os.pipe()[0], 1)
    while how == "poll":
        time.sleep(0.001)
    while True:
        sum(range(100))


def broadcast():
    ready(), os.read(os.pipe()[0], 1)


def barrier():
    time.sleep(0.01)
