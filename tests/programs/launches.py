"""Launches kernels from every kind of Python call.

    launches.py PATHS

Loads the simulated runtime with ctypes. Every launch has its own kernel, `py:N`, and PATHS gets a line for each: N and
the Python frames as the interpreter itself sees them at that moment, outermost first, separated by tabs. A frame is formatted as
warpscope must show it: qualified name (from 3.11 on), file name and line. Prints `launched N`.
"""
import asyncio
import contextlib
import ctypes
import functools
import os
import sys
import threading

from cudart import ONE, cudart, register

paths = open(sys.argv[1], "w", encoding="utf-8")
kernels = []  # their host functions
lock = threading.Lock()


def kernel(frame):
    """A kernel for this frame's stack."""
    path = []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        path.insert(0, "%s (%s:%d)" % (name, os.path.basename(code.co_filename), frame.f_lineno))
        frame = frame.f_back
    with lock:
        paths.write("%d\t%s\n" % (len(kernels), "\t".join(path)))
        kernels.append(register("py:%d" % len(kernels)))
        return kernels[-1]


def launch(*_):
    # One line, so that the line of the call is the line in the kernel's path.
    cudart.cudaLaunchKernel(kernel(sys._getframe()), ONE, ONE, None, 0, None)
    return 0


def plain():
    launch()


def several_lines(first=None,
                  second=None):
    launch(
        first,
        second,
    )


def recursion(depth):
    if depth:
        return recursion(depth - 1)
    launch()


class Model:
    def __init__(self):
        launch()

    def method(self):
        launch()

    @classmethod
    def of_class(cls):
        launch()

    @staticmethod
    def of_nobody():
        launch()

    @property
    def attribute(self):
        launch()

    def __call__(self):
        launch()

    def __getattr__(self, name):
        launch()

    def __lt__(self, other):
        launch()
        return False

    def __del__(self):
        launch()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


@decorated
def with_decorator():
    def closure():
        launch()

    closure()


def numbers(count):
    for number in range(count):
        launch()
        yield number


def delegating():
    yield from numbers(2)


@contextlib.contextmanager
def managed():
    launch()
    try:
        yield
    finally:
        launch()


def generators():
    for _ in numbers(2):
        pass
    list(delegating())
    sum(x for x in numbers(1))
    [launch() for _ in range(2)]
    {launch(): 1 for _ in range(1)}
    with managed():
        launch()


def called_back():
    sorted([2, 1], key=launch)
    sorted([Model.__new__(Model), Model.__new__(Model)])
    functools.reduce(lambda a, b: launch(a, b), [1, 2, 3])
    list(map(lambda x: launch(x), [1]))
    list(filter(launch, [1, 2]))
    functools.partial(launch, 1)()
    max([1, 2], key=lambda x: launch(x))
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    array = (ctypes.c_int * 2)(2, 1)
    ctypes.CDLL(None).qsort(array, ctypes.c_size_t(2), ctypes.c_size_t(4), compare(lambda a, b: launch() or 1))


async def inner():
    launch()
    await asyncio.sleep(0)
    launch()


async def agenerator():
    yield 1
    launch()
    yield 2


async def outer():
    await inner()
    await asyncio.gather(inner(), inner())
    async for _ in agenerator():
        launch()


def exceptions():
    try:
        raise ValueError
    except ValueError:
        launch()
    finally:
        launch()


SOURCE = """
def größe():
    функция()

def функция():
    launch()
größe()
"""


def made():
    for number in range(3):
        exec(compile("\n" * number + SOURCE, "made%d.py" % number, "exec"), {"launch": launch})
    eval("launch()")


def repeated():
    """The same frames again and again, except for one caller, one line or one code object: none may be mistaken for another."""

    def left():
        launch()

    def right():
        launch()

    for function in (left, left, right, right) * 3:
        function()
    for _ in range(4):
        recursion(5)
        recursion(5)
    # The memory of a freed code object is reused by the next one.
    for number in range(12):
        scope = {"launch": launch}
        source = "\n" * (number // 2 % 2) + "def name%d():\n    launch()\n" % (number // 3 % 3)
        exec(compile(source, "again.py", "exec"), scope)
        again = scope.pop("name%d" % (number // 3 % 3))
        for _ in range(3):
            again()
        del scope, again


def all_of_them():
    plain()
    several_lines(1)
    recursion(12)
    model = Model()
    model.method()
    Model.of_class()
    model.of_nobody()
    model.attribute
    model()
    model.missing
    del model
    with_decorator()
    generators()
    called_back()
    asyncio.run(outer())
    exceptions()
    made()


def main():
    all_of_them()
    threads = [threading.Thread(target=all_of_them) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    repeated()
    if sys.version_info >= (3, 11):
        recursion(100)
    # The loop becomes hot, so the interpreter specialises its bytecode.
    for _ in range(40):
        plain()
        Model().method()


main()
cudart.cudaDeviceSynchronize()
print("launched", len(kernels))
