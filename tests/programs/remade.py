"""Launches from code objects that are made again and again, at the addresses of those that were freed.

    remade.py ROUNDS

Each function is compiled, called three times and freed. They differ in their name, their file, or only in the line of the launch: then all
fields of two code objects may be the same, and the addresses of all that they refer to. The kernel of `NAME (FILE.py:LINE)` is named
`NAME_FILE_LINE`. Prints `launched COUNT` and the number of addresses that code objects of several functions had.
"""
import sys

from cudart import ONE, cudart, register

VARIANTS = [(name, file, line) for name in ("one", "two") for file in ("left", "last") for line in (2, 3, 4, 5)]
HOSTS = {variant: register("%s_%s_%d" % variant) for variant in VARIANTS}
addresses = {}


def make(name, file, line):
    source = "def " + name + "():\n" + "\n" * (line - 2) + "    launch(host, ONE, ONE, None, 0, None)\n" + "\n" * (5 - line)
    scope = {"launch": cudart.cudaLaunchKernel, "host": HOSTS[name, file, line], "ONE": ONE}
    exec(compile(source, file + ".py", "exec"), scope)
    return scope.pop(name)


def main():
    rounds = int(sys.argv[1])
    for _ in range(rounds):
        for variant in VARIANTS:
            function = make(*variant)
            addresses.setdefault(id(function.__code__), set()).add(variant)
            for _ in range(3):
                function()
            del function
    cudart.cudaDeviceSynchronize()
    print("launched %d" % (3 * rounds * len(VARIANTS)))
    print("shared %d" % sum(len(variants) > 1 for variants in addresses.values()))


main()
