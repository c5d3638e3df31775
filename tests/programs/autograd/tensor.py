"""A stand-in for PyTorch's Python code: a library, in site-packages, whose functions call the engine."""
import ctypes
import os

library = ctypes.CDLL(os.path.join(os.environ["TRAIN_LIBRARIES"], "libtrain.so"))


class Tensor:
    def __init__(self, name):
        # The engine keeps the address only during the call.
        self.name = name

    def backward(self):
        _engine_run_backward(self.name)


def _engine_run_backward(name):
    library.call((name + "|work").encode(), (name + ">work").encode())
