"""A stand-in for PyTorch's Python code: a library, in site-packages, whose functions call the engine."""
import ctypes
import os

library = ctypes.CDLL(os.path.join(os.environ["TRAIN_LIBRARIES"], "libtrain.so"))


library.make.restype = ctypes.c_ulong


class Graph:
    """Nodes that are made in the forward pass, each with the name of its kernel."""

    def __init__(self):
        self.nodes = []

    def linear(self, name):
        self.nodes.append((name.encode(), library.make()))

    def backward(self):
        names, numbers = zip(*self.nodes)
        count = len(names)
        library.differentiate((ctypes.c_char_p * count)(*names), (ctypes.c_ulong * count)(*numbers), count)


class Tensor:
    def __init__(self, name):
        # The engine keeps the address only during the call.
        self.name = name

    def backward(self):
        _engine_run_backward(self.name)


def _engine_run_backward(name):
    library.call((name + "|work").encode(), (name + ">work").encode())
