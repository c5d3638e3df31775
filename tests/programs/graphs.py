"""Captures a CUDA graph from several Python functions and launches it from another one.

    graphs.py PATHS REPLAYS

Loads the simulated libraries with ctypes. Every captured kernel has its own name, `py:N`, and PATHS gets a line for each: N
and the Python frames as the interpreter itself sees them at that moment, outermost first, separated by tabs. The graph is
captured by the main thread and launched by the main thread and by another one. Prints `captured N`.
"""
import ctypes
import os
import sys
import threading

from cudart import ONE, cudart, register

paths = open(sys.argv[1], "w", encoding="utf-8")
kernels = []
stream = ctypes.c_void_p()


def check(error):
    if error:
        sys.exit("CUDA error %d" % error)


def kernel(frame):
    """A kernel for this frame's stack."""
    path = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        path.insert(0, "%s (%s:%d)" % (name, os.path.basename(code.co_filename), frame.f_lineno))
        frame = frame.f_back
    number = len(kernels)
    paths.write("%d\t%s\n" % (number, "\t".join(path)))
    kernels.append(register("py:%d" % number))
    return kernels[number]


def launch():
    # One line, so that the line of the call is the line in the kernel's path.
    check(cudart.cudaLaunchKernel(kernel(sys._getframe()), ONE, ONE, None, 0, stream))


class Attention:
    def forward(self):
        launch()
        self.softmax()
        launch()

    def softmax(self):
        for _ in range(3):
            launch()


class Layer:
    def __init__(self):
        self.attention = Attention()

    def forward(self):
        self.attention.forward()
        [launch() for _ in range(2)]
        self.residual(4)

    def residual(self, depth):
        if depth:
            return self.residual(depth - 1)
        launch()


def model():
    launch()
    for _ in range(25):
        Layer().forward()
    launch()


def capture():
    graph = ctypes.c_void_p()
    executable = ctypes.c_void_p()
    check(cudart.cudaStreamCreate(ctypes.byref(stream)))
    check(cudart.cudaStreamBeginCapture(stream, 0))
    model()
    check(cudart.cudaStreamEndCapture(stream, ctypes.byref(graph)))
    check(cudart.cudaGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)))
    return executable


def replay_loop(executable, times):
    for _ in range(times):
        check(cudart.cudaGraphLaunch(executable, stream))


def main():
    executable = capture()
    times = int(sys.argv[2])
    replay_loop(executable, times)
    thread = threading.Thread(target=replay_loop, args=(executable, times))
    thread.start()
    thread.join()


main()
check(cudart.cudaDeviceSynchronize())
print("captured", len(kernels))
