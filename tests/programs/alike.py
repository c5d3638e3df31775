"""Python stacks that differ in a single instruction, at every depth.

    alike.py ROUNDS [thread]

Functions call each other DEPTH levels deep. In path 0 every level calls the next one from its first line; in path N, level N does so
from its second line. The kernel of path N is named `differs_N`. With `thread`, all launches are made by a thread other than the main one.
Prints `launched COUNT`.
"""
import ctypes
import sys
import threading

DEPTH = 40


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


cudart = ctypes.CDLL("libcudart.so.12")
cudart.__cudaRegisterFatBinary.restype = ctypes.c_void_p
binary = ctypes.c_void_p(cudart.__cudaRegisterFatBinary(None))
cudart.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
one = Dim3(1, 1, 1)
hosts = [ctypes.create_string_buffer(8) for _ in range(DEPTH + 1)]
names = [ctypes.create_string_buffer(b"differs_%d" % path) for path in range(DEPTH + 1)]
for host, name in zip(hosts, names):
    cudart["__cudaRegisterFunction"](binary, host, name, name, -1, None, None, None, None, None)


def step(level, differs):
    if level > DEPTH:
        return cudart.cudaLaunchKernel(ctypes.addressof(hosts[differs]), one, one, None, 0, None)
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
