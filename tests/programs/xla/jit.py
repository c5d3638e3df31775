"""Tasks handed over by Python: jit.py ROUNDS. Kernels are named as in compile.c, after the Python lines that run programs."""
import os
import sys

sys.path.insert(0, os.path.join(os.environ["COMPILE_LIBRARIES"], "site-packages"))
from compiled import library, run


def step():
    run("step (jit.py:%d)|work" % sys._getframe().f_lineno)
    run("step (jit.py:%d)|work" % sys._getframe().f_lineno)


library.start()
for _ in range(int(sys.argv[1])):
    step()
