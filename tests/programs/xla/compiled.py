"""A stand-in for JAX's Python code: a library, in site-packages, whose functions run compiled programs."""
import ctypes
import os

library = ctypes.CDLL(os.path.join(os.environ["COMPILE_LIBRARIES"], "libcompile.so"))


def run(name):
    _call(name.encode())


def _call(name):
    library.call(ctypes.c_char_p(name))
