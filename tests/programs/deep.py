"""Launches kernels at the end of a recursion.

    deep.py DEPTH COUNT    calls `recurse` DEPTH levels deep, and launches COUNT kernels there
"""
import ctypes
import sys


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


cudart = ctypes.CDLL("libcudart.so.12")
cudart.__cudaRegisterFatBinary.restype = ctypes.c_void_p
binary = ctypes.c_void_p(cudart.__cudaRegisterFatBinary(None))
cudart.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
one = Dim3(1, 1, 1)
host = ctypes.create_string_buffer(8)
name = ctypes.create_string_buffer(b"deep")
cudart["__cudaRegisterFunction"](binary, host, name, name, -1, None, None, None, None, None)


def recurse(depth, count):
    if depth > 1:
        recurse(depth - 1, count)
        return
    for _ in range(count):
        if cudart.cudaLaunchKernel(ctypes.addressof(host), one, one, None, 0, None):
            raise SystemExit("a launch failed")


sys.setrecursionlimit(10000)
recurse(int(sys.argv[1]), int(sys.argv[2]))
print("done")
