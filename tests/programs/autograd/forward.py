"""Backward work and its forward lines: forward.py ROUNDS. A kernel is named after the line that makes its node, or `several` if two threads
have made nodes with its number."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.environ["TRAIN_LIBRARIES"], "site-packages"))
from tensor import Graph, library


def line():
    return "linear (forward.py:%d)" % sys._getframe(1).f_lineno


def model(graph):
    graph.linear(line())
    for _ in range(3):
        graph.linear(line())
    head(graph)


def head(graph):
    graph.linear(line())


def step():
    graph = Graph()
    model(graph)
    head(graph)
    graph.backward()


def again():
    graph = Graph()
    graph.linear("several")
    graph.backward()


library.start()
for _ in range(int(sys.argv[1])):
    step()
thread = threading.Thread(target=again)
thread.start()
thread.join()
step()
