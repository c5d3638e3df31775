"""Tensors of a stand-in for PyTorch's caching allocator. Prints what the allocator itself counts, as JSON."""
import ctypes
import json
import threading

c10 = ctypes.CDLL("libc10_cuda.so")
for name, result, *arguments in [
    ("c10_malloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
    ("c10_free", None, ctypes.c_void_p),
    ("c10_delete", None, ctypes.c_void_p),
    ("c10_allocated", ctypes.c_size_t, ctypes.c_int),
    ("c10_peak", ctypes.c_size_t, ctypes.c_int),
    ("c10_reserved", ctypes.c_size_t, ctypes.c_int),
    ("other_library", ctypes.c_void_p, ctypes.c_size_t),
]:
    getattr(c10, name).restype, getattr(c10, name).argtypes = result, arguments


class Tensor:
    free = c10.c10_free

    def __init__(self, address):
        self.address = address

    def __del__(self):
        self.free(self.address)


def weights():
    first = Tensor(c10.c10_malloc(3000001, 0))
    second = Tensor(c10.c10_malloc(700, 0))
    return [first, second]


def activations(count):
    made = []
    for _ in range(count):
        made.append(Tensor(c10.c10_malloc(17500000, 0)))
    return made


def scratch():
    for size in (1, 512, 513, 1 << 20, (1 << 20) + 1, 5000000, 19922944, 30000000):
        Tensor(c10.c10_malloc(size, 0))


def in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def step(count):
    scratch()
    held = activations(count)
    # The other thread frees them, and the next step uses their memory again.
    in_thread(held.clear)
    scratch()


library = c10.other_library(7 << 20)
held = weights()
for count in (1, 3, 2):
    step(count)
c10.c10_empty_cache()
Tensor.free = c10.c10_delete
scratch()
held.append(Tensor(c10.c10_malloc(2000000, 1)))
print(json.dumps({name: [getattr(c10, "c10_" + name)(device) for device in (0, 1)] for name in ("peak", "allocated", "reserved")}))
