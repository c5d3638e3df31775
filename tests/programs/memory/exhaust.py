"""Tensors of a stand-in for PyTorch's caching allocator, which runs out of memory. Commands are lines on stdin:

    recover    allocates what fits only once the cache is empty
    die        raises an error, as what it allocates does not fit at all

Prints what the allocator has counted when the driver refused last: failures, allocated and reserved bytes."""
import ctypes
import sys

c10 = ctypes.CDLL("libc10_cuda.so")
for name, result, *arguments in [
    ("c10_malloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    ("c10_free", None, ctypes.c_void_p),
    ("c10_failures", ctypes.c_size_t),
    ("c10_failed", ctypes.c_size_t, ctypes.c_int),
    ("other_library", ctypes.c_void_p, ctypes.c_size_t),
]:
    getattr(c10, name).restype, getattr(c10, name).argtypes = result, arguments
MIB = 1 << 20


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    def __init__(self, address):
        if not address:
            raise OutOfMemoryError("out of memory")
        self.address = address

    def __del__(self):
        if hasattr(self, "address"):
            c10.c10_free(self.address)


def weights():
    return Tensor(c10.c10_malloc(30 * MIB, 0))


def activations(count):
    made = []
    for _ in range(count):
        made.append(Tensor(c10.c10_malloc(12 * MIB, 0)))
    return made


def large(size):
    return Tensor(c10.c10_malloc(size * MIB, 0))


def say():
    print(c10.c10_failures(), c10.c10_failed(0), c10.c10_failed(1), flush=True)


held = [weights()]
other = c10.other_library(7 * MIB)
activations(3)
say()
for line in sys.stdin:
    if line.strip() == "recover":
        held.append(large(40))
    else:
        activations(1)
        try:
            large(36)
        finally:
            say()
    say()
