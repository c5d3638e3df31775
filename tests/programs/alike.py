"""Python stacks that differ in a single instruction, at every depth.

    alike.py ROUNDS [thread]

Functions call each other DEPTH levels deep. In path 0 every level calls the next one from its first line; in path N, level N does so
from its second line. The kernel of path N is named `differs_N`. With `thread`, all launches are made by a thread other than the main one.
Prints `launched COUNT`.
"""
import sys
import threading

from cudart import ONE, cudart, register

DEPTH = 40
HOSTS = [register("differs_%d" % path) for path in range(DEPTH + 1)]


def step(level, differs):
    if level > DEPTH:
        return cudart.cudaLaunchKernel(HOSTS[differs], ONE, ONE, None, 0, None)
    if level != differs:
        return step(level + 1, differs)
    return step(level + 1, differs)


def run(rounds):
    for _ in range(rounds):
        for differs in range(DEPTH + 1):
            if step(1, differs):
                raise SystemExit("a launch failed")


def main():
    rounds = int(sys.argv[1])
    if sys.argv[2:] == ["thread"]:
        thread = threading.Thread(target=run, args=(rounds,))
        thread.start()
        thread.join()
    else:
        run(rounds)
    print("launched %d" % (rounds * (DEPTH + 1)))


main()
