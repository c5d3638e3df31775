"""Makes warpscope keep more and more Python code.

    hoard.py FILE

Makes 80,000 functions with long names, one after the other, and launches a kernel from each. Creates FILE once it has begun. Prints
`done`.
"""
import sys

from cudart import ONE, cudart, register

FUNCTIONS = 80000
HOST = register("hoarded")


def made(number):
    name = "function_%d_%s" % (number, "x" * 200)
    code = compile("def %s():\n    return launch()\n" % name, "/%s/%d.py" % ("y" * 200, number), "exec")
    names = {"launch": launch}
    exec(code, names)
    return names[name]


def launch():
    return cudart.cudaLaunchKernel(HOST, ONE, ONE, None, 0, None)


def main():
    open(sys.argv[1], "w").close()
    # Kept, so that no address is used again.
    functions = []
    for number in range(FUNCTIONS):
        functions.append(made(number))
        if functions[-1]():
            raise SystemExit("a launch failed")
    print("done")


main()
