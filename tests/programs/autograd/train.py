"""Work handed over by Python: train.py ROUNDS. Kernels are named as in train.c, after the Python lines that call backward."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.environ["TRAIN_LIBRARIES"], "site-packages"))
from tensor import Tensor, library


def here():
    frame = sys._getframe(1)
    return Tensor("%s (train.py:%d)" % (frame.f_code.co_name, frame.f_lineno))


def forward():
    here().backward()


def step():
    here().backward()
    here().backward()


def repeat(function):
    for _ in range(int(sys.argv[1])):
        function()


library.start()
repeat(forward)
repeat(step)
library.arm()
threads = [threading.Thread(target=repeat, args=(function,)) for function in (forward, step, forward)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
