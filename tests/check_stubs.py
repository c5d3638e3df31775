#!/usr/bin/env python3
"""Checks that each kernel in a folded file appears under the host code that launches it.

    tests/check_stubs.py [--strict] FILE.folded...
    tests/check_stubs.py --self-test

For a kernel `k`, nvcc generates a host function `k` and a stub that calls the runtime: `__device_stub_` followed by k's mangled
name. Either is on the stack of k's launches and of no other kernel's, so the program itself says which kernel
belongs to a stack. A kernel under the stub of another is a wrong join.

At -O3 the stub is often inlined into the host function. A frame counts as a host function if it has the full name of a kernel
in the file. Kernels of libraries and of Triton have neither: they are counted, and are errors with --strict.
"""

import re
import sys
import unittest
from collections import namedtuple

# A kernel's name: its path without anonymous namespaces, and its template arguments (None: not comparable).
Name = namedtuple("Name", "path arguments")

KERNEL_FRAME = re.compile(r"^\[GPU\d*_Kernel\] (.*)$")
STUB = re.compile(r"__device_stub_+(\w+)")
WRAPPER = "__wrapper__device_stub_"

BUILTINS = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short", "t": "unsigned short",
    "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long", "y": "unsigned long long",
    "f": "float", "d": "double",
}  # fmt: skip

ANONYMOUS = re.compile(r"^(_GLOBAL__N_|_INTERNAL_|<anonymous>$|\(anonymous namespace\)$|\{anonymous\}$)")


class Unknown(Exception):
    """A mangled form that this parser does not know."""


class Mangled:
    """Parses the needed part of an Itanium-mangled function name: its path and, if they are simple, its template arguments."""

    def __init__(self, text):
        self.text = text
        self.at = 0

    def peek(self, prefix):
        return self.text.startswith(prefix, self.at)

    def take(self, prefix):
        found = self.peek(prefix)
        if found:
            self.at += len(prefix)
        return found

    def source_name(self):
        match = re.compile(r"\d+").match(self.text, self.at)
        if not match:
            raise Unknown(self.text[self.at :])
        end = match.end() + int(match.group())
        name = self.text[match.end() : end]
        if len(name) != int(match.group()):
            raise Unknown("a name is truncated")
        self.at = end
        return name

    def function(self):
        """Parses from after `_Z` to the end of the name; the parameters are not read."""
        nested = self.take("N")
        path = []
        while True:
            if nested and self.take("E"):
                break
            if self.take("St"):
                path.append("std")
                continue
            self.take("L")
            path.append(self.source_name())
            while self.take("B"):
                self.source_name()  # an ABI tag
            if self.peek("I"):
                # Kernels are not class members, so the part with arguments is the function, and the last part.
                return Name(known_path(path), self.template_arguments())
            if not nested:
                break
        return Name(known_path(path), ())

    def template_arguments(self):
        """The arguments as text, or None if one of them is not a built-in type, a plain name or a literal."""
        self.take("I")
        arguments = []
        try:
            while not self.take("E"):
                arguments.append(self.template_argument())
        except Unknown:
            return None
        return tuple(arguments)

    def template_argument(self):
        if self.take("L"):
            kind = self.text[self.at : self.at + 1]
            match = re.compile(r"[a-z](n?\d+)E").match(self.text, self.at)
            if not match or kind not in BUILTINS:
                raise Unknown(self.text[self.at :])
            self.at = match.end()
            value = match.group(1).replace("n", "-")
            return {"0": "false", "1": "true"}.get(value, value) if kind == "b" else value
        builtin = BUILTINS.get(self.text[self.at : self.at + 1])
        if builtin:
            self.at += 1
            return builtin
        return self.source_name()


def known_path(path):
    return tuple(part for part in path if not ANONYMOUS.match(part))


def split_outside(text, separator):
    """Splits at a separator outside of brackets."""
    parts, depth, start, i = [], 0, 0, 0
    while i < len(text):
        if text[i] in "<([{":
            depth += 1
        elif text[i] in ">)]}" and not text.startswith("->", i - 1):
            depth -= 1
        elif depth == 0 and text.startswith(separator, i):
            parts.append(text[start:i])
            i += len(separator)
            start = i
            continue
        i += 1
    parts.append(text[start:])
    return parts


def cut_parameters(text):
    """The name before its parameter list, and whether it had one."""
    depth = 0
    for i, character in enumerate(text):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif character == "(" and depth == 0 and not text.startswith("(anonymous namespace)", i):
            return text[:i], True
    return text, False


def plain_argument(text):
    """A template argument in one spelling: `(bool)1` and `true` are the same, so are `(int)4` and `4u`."""
    text = " ".join(text.split())
    cast = re.match(r"^\((bool|[a-z ]+)\)(-?\d+)$", text)
    if cast:
        text = {"0": "false", "1": "true"}.get(cast.group(2), cast.group(2)) if cast.group(1) == "bool" else cast.group(2)
    if re.match(r"^-?\d+[uUlL]+$", text):
        text = text.rstrip("uUlL")
    words = {"unsigned": "unsigned int", "long int": "long", "short int": "short"}
    return words.get(text, text)


def read_demangled(text):
    name, _ = cut_parameters(text.strip())
    # A template function's return type comes before its name.
    name = split_outside(name.strip(), " ")[-1]
    path, arguments = [], ()
    for part in split_outside(name, "::"):
        bare, bracket, rest = part.partition("<")
        if bracket and bare:
            path.append(bare)
            arguments = tuple(plain_argument(a) for a in split_outside(rest.rstrip()[:-1], ",")) if rest.rstrip() != ">" else ()
        else:
            path.append(part)
            arguments = ()
    return Name(known_path(path), arguments)


def read_name(text):
    """A function's name, mangled or not."""
    text = text.strip()
    if re.match(r"^_Z[NL\dS]", text):
        try:
            return Mangled(text[2:]).function()
        except Unknown:
            return Name((text,), None)
    return read_demangled(text)


def read_stub(frame):
    """The kernel's name in a stub's frame, or None if the frame is not a stub."""
    if WRAPPER in frame:
        name = read_name(frame)
        return Name(tuple(part.replace(WRAPPER, "") for part in name.path), name.arguments)
    match = STUB.search(frame)
    if not match:
        return None
    kernel = match.group(1)
    # A mangled stub contains the length of its own name; its parameters follow.
    length = re.search(r"(\d+)$", frame[: match.start()])
    if length and frame.startswith("_Z"):
        kernel = kernel[: int(length.group(1)) - (match.start(1) - match.start())]
    if re.match(r"^Z[NL\dS]", kernel):
        return read_name("_" + kernel)
    return Name((kernel,), ())  # extern "C"


def same(first, second):
    """Whether two names can belong to one kernel. Outer parts that only one side has are ignored, because the device and the host
    name an anonymous namespace differently. So are leading underscores, which the stub of an extern "C" name absorbs.
    """
    depth = min(len(first.path), len(second.path))
    if depth == 0:
        return False
    if any(a.lstrip("_") != b.lstrip("_") for a, b in zip(first.path[-depth:], second.path[-depth:])):
        return False
    return None in (first.arguments, second.arguments) or first.arguments == second.arguments


def full_name(frame):
    """A kernel's whole name in one spelling, to identify its host function; None for a name without parameters."""
    if frame.startswith("_Z"):
        return frame.partition(".")[0]  # without suffixes such as `.cold`
    _, has_parameters = cut_parameters(frame)
    if not has_parameters:
        return None
    return re.sub(r"\s+", "", re.sub(r"^void ", "", re.sub(r"( \[clone .*\]|\.cold)$", "", frame)))


def parse_folded(lines):
    """Yields (frames, weight) for each line; raises ValueError with the line's number."""
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        if not line or line.startswith("#"):
            continue
        stack, _, weight = line.rpartition(" ")
        try:
            yield stack.split(";"), float(weight)
        except ValueError:
            raise ValueError(f"line {number} does not end in a number: {line[-60:]!r}") from None


class Verdict:
    """Stacks and weight, by outcome."""

    def __init__(self):
        self.stacks = {"agree": 0, "without": 0, "disagree": 0}
        self.weight = {"agree": 0.0, "without": 0.0, "disagree": 0.0}
        self.messages = []

    def add(self, outcome, weight):
        self.stacks[outcome] += 1
        self.weight[outcome] += weight

    def summary(self):
        count, weight = self.stacks, self.weight
        return (
            f"checked {sum(count.values())} stacks ({sum(weight.values()):.0f} us): "
            f"{count['agree']} agree, {count['without']} without a stub, {count['disagree']} disagree\n"
            f"by weight: {weight['agree']:.0f} us agree, {weight['without']:.0f} us without a stub, "
            f"{weight['disagree']:.0f} us disagree"
        )


def kernel_of(frames):
    """The GPU kernel's name and its place in the stack, or None. Stall reasons may follow it."""
    for i in range(len(frames) - 1, -1, -1):
        match = KERNEL_FRAME.match(frames[i])
        if match:
            return match.group(1), i
    return None


def check(lines, strict=False):
    stacks = [(frames, weight, kernel_of(frames)) for frames, weight in parse_folded(lines)]
    hosts = {full_name(kernel[0]) for _, _, kernel in stacks if kernel} - {None}
    verdict = Verdict()
    for frames, weight, kernel in stacks:
        if not kernel:
            continue
        text, place = kernel
        outcome, reason = judge(frames[:place], text, hosts)
        verdict.add(outcome, weight)
        if outcome == "disagree" or (strict and outcome == "without"):
            verdict.messages.append(f"{reason}: {';'.join(frames)}")
    return verdict


def judge(cpu_frames, kernel, hosts):
    for frame in reversed(cpu_frames):
        stub = read_stub(frame)
        if stub:
            if same(stub, read_name(kernel)):
                return "agree", ""
            return "disagree", f"kernel {kernel} under the stub of {'::'.join(stub.path)}"
        name = full_name(frame)
        if name in hosts:
            if name == full_name(kernel):
                return "agree", ""
            return "disagree", f"kernel {kernel} under the host function {frame}"
    return "without", f"kernel {kernel} without a stub"


class Tests(unittest.TestCase):
    """Folded lines as warpscope writes them, and the expected outcome of each."""

    STUB = "__device_stub__Z13matmul_kernelPKfS0_Pfiii(float const*, float const*, float*, int, int, int)"
    KERNEL = "[GPU_Kernel] matmul_kernel(float const*, float const*, float*, int, int, int)"

    def outcome(self, *lines, **options):
        verdict = check(lines, **options)
        return tuple(verdict.stacks[key] for key in ("agree", "without", "disagree"))

    def test_demangled_stub(self):
        self.assertEqual(self.outcome(f"app;main;{self.STUB};cudaLaunchKernel;{self.KERNEL} 12"), (1, 0, 0))
        self.assertEqual(self.outcome(f"app;main;{self.STUB};[GPU_Kernel] rms_norm_kernel(float*) 12"), (0, 0, 1))

    def test_mangled_stub(self):
        mangled = "_Z42__device_stub__Z13matmul_kernelPKfS0_PfiiiPKfS0_Pfiii"
        self.assertEqual(self.outcome(f"main;{mangled};{self.KERNEL} 1"), (1, 0, 0))
        self.assertEqual(self.outcome(f"main;{mangled};[GPU_Kernel] _Z13matmul_kernelPKfS0_Pfiii 1"), (1, 0, 0))
        self.assertEqual(self.outcome(f"main;{mangled};[GPU_Kernel] _Z10add_kernelPf 1"), (0, 0, 1))

    def test_bare_stub_name(self):
        self.assertEqual(self.outcome(f"main;__device_stub__Z13matmul_kernelPKfS0_Pfiii;{self.KERNEL} 1"), (1, 0, 0))

    def test_a_name_that_is_a_prefix_disagrees(self):
        self.assertEqual(self.outcome("main;__device_stub__Z3addPf(float*);[GPU_Kernel] add2(float*) 1"), (0, 0, 1))
        self.assertEqual(self.outcome("main;__device_stub__Z4add2Pf(float*);[GPU_Kernel] add(float*) 1"), (0, 0, 1))

    def test_many_gpus(self):
        self.assertEqual(self.outcome(f"main;{self.STUB};{self.KERNEL.replace('GPU', 'GPU3')} 1"), (1, 0, 0))

    def test_template_kernels(self):
        stub = "__device_stub__Z13matvec_kernelILb1EEvPfPKtPKfii(float*, unsigned short const*, float const*, int, int)"
        kernel = "[GPU_Kernel] void matvec_kernel<{}>(float*, unsigned short const*, float const*, int, int) 1"
        self.assertEqual(self.outcome(f"main;{stub};{kernel.format('true')}"), (1, 0, 0))
        self.assertEqual(self.outcome(f"main;{stub};{kernel.format('(bool)1')}"), (1, 0, 0))
        self.assertEqual(self.outcome(f"main;{stub};{kernel.format('false')}"), (0, 0, 1))
        self.assertEqual(self.outcome("main;__device_stub__Z1kILi4EfLj2EEvv();[GPU_Kernel] void k<4, float, 2u>() 1"), (1, 0, 0))
        self.assertEqual(self.outcome("main;__device_stub__Z1kILi4EfEvv();[GPU_Kernel] void k<4, double>() 1"), (0, 0, 1))

    def test_template_arguments_that_are_not_simple_are_not_compared(self):
        stub = "__device_stub__ZN2at6native6kernelINS0_3OpTIfEELi4EEEvT_()"
        self.assertEqual(self.outcome(f"main;{stub};[GPU_Kernel] void at::native::kernel<at::native::OpT<float>, 4>(int) 1"), (1, 0, 0))
        self.assertEqual(self.outcome(f"main;{stub};[GPU_Kernel] void at::native::other<at::native::OpT<float>, 4>(int) 1"), (0, 0, 1))

    def test_namespaces(self):
        stub = "__device_stub__ZN4math3addEPf(float*)"
        self.assertEqual(self.outcome(f"main;{stub};[GPU_Kernel] math::add(float*) 1"), (1, 0, 0))
        self.assertEqual(self.outcome(f"main;{stub};[GPU_Kernel] text::add(float*) 1"), (0, 0, 1))

    def test_anonymous_namespaces_and_static_kernels(self):
        stub = "__device_stub__ZN57_INTERNAL_8d1f0a3c_4_a_cu_12345678_1234_GLOBAL__N__9abcdef3addEPf(float*)"
        stub = stub.replace("57_INTERNAL", f"{len('_INTERNAL_8d1f0a3c_4_a_cu_12345678_1234_GLOBAL__N__9abcdef')}_INTERNAL")
        self.assertEqual(self.outcome(f"main;{stub};[GPU_Kernel] (anonymous namespace)::add(float*) 1"), (1, 0, 0))
        self.assertEqual(self.outcome("main;__device_stub__ZN12_GLOBAL__N_13addEPf(float*);[GPU_Kernel] add(float*) 1"), (1, 0, 0))
        self.assertEqual(self.outcome("main;__device_stub__ZL3addPf(float*);[GPU_Kernel] add(float*) 1"), (1, 0, 0))

    def test_extern_c_kernel(self):
        self.assertEqual(self.outcome("main;__device_stub__saxpy(float*);[GPU_Kernel] saxpy 1"), (1, 0, 0))
        self.assertEqual(self.outcome("main;_Z20__device_stub__saxpyPf;[GPU_Kernel] saxpy 1"), (1, 0, 0))
        self.assertEqual(self.outcome("main;__device_stub___saxpy(float*);[GPU_Kernel] _saxpy 1"), (1, 0, 0))
        self.assertEqual(self.outcome("main;__device_stub__saxpy(float*);[GPU_Kernel] daxpy 1"), (0, 0, 1))

    def test_wrapper_of_a_template(self):
        frame = "void __wrapper__device_stub_k<true>(float*&)"
        self.assertEqual(self.outcome(f"main;{frame};[GPU_Kernel] void k<true>(float*) 1"), (1, 0, 0))
        self.assertEqual(self.outcome(f"main;{frame};[GPU_Kernel] void k<false>(float*) 1"), (0, 0, 1))

    def test_host_function_in_place_of_the_stub(self):
        add, scale = "add(float*)", "scale(float*)"
        good = [f"main;{add};[GPU_Kernel] {add} 1", f"main;{scale};[GPU_Kernel] {scale} 1"]
        self.assertEqual(self.outcome(*good, strict=True), (2, 0, 0))
        self.assertEqual(self.outcome(*good, f"main;{add};[GPU_Kernel] {scale} 1"), (2, 0, 1))

    def test_a_host_function_of_the_same_name_and_other_parameters_is_no_stub(self):
        lines = ["main;add(Vectors const&);[GPU_Kernel] scale(float*) 1", "main;x;[GPU_Kernel] add(float*) 1"]
        self.assertEqual(self.outcome(*lines), (0, 2, 0))

    def test_parts_of_a_host_function(self):
        kernel = "_Z13matvec_kernelILb1EEvPfPKtPKfii"
        self.assertEqual(self.outcome(f"main;{kernel}.cold;[GPU_Kernel] {kernel} 1"), (1, 0, 0))
        self.assertEqual(self.outcome("main;k(float*) [clone .cold];[GPU_Kernel] k(float*) 1"), (1, 0, 0))

    def test_the_frame_nearest_the_kernel_counts(self):
        outer = "__device_stub__Z5outerPf(float*)"
        self.assertEqual(self.outcome(f"main;{outer};{self.STUB};{self.KERNEL} 1"), (1, 0, 0))

    def test_only_kernels_are_checked(self):
        lines = [f"main;{self.STUB} 3", "main;cudaMemcpy;[GPU_Memcpy HtoD] 4-8 MiB 5", f"main;{self.STUB};[GPU_Launch_Pending] 0"]
        self.assertEqual(self.outcome(*lines), (0, 0, 0))

    def test_stall_reasons_below_the_kernel(self):
        self.assertEqual(self.outcome(f"main;{self.STUB};{self.KERNEL};long_scoreboard 1"), (1, 0, 0))

    def test_library_kernels_have_no_stub(self):
        line = "main;cublasSgemm;[GPU_Kernel] sm90_xmma_gemm_f32f32 8"
        self.assertEqual(self.outcome(line), (0, 1, 0))
        self.assertEqual(check([line]).messages, [])
        self.assertEqual(len(check([line], strict=True).messages), 1)

    def test_weights_are_summed(self):
        lines = [f"main;{self.STUB};{self.KERNEL} 12", f"main;other;{self.STUB};{self.KERNEL} 30", "main;[GPU_Kernel] x 8"]
        expected = (
            "checked 3 stacks (50 us): 2 agree, 1 without a stub, 0 disagree\n"
            "by weight: 42 us agree, 8 us without a stub, 0 us disagree"
        )
        self.assertEqual(check(lines).summary(), expected)

    def test_a_line_without_a_weight_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "line 2"):
            check([f"main;{self.KERNEL} 1", "main;nothing"])


def main(arguments):
    if arguments == ["--self-test"]:
        result = unittest.TextTestRunner(verbosity=1).run(unittest.defaultTestLoader.loadTestsFromTestCase(Tests))
        return 0 if result.wasSuccessful() else 1
    strict = "--strict" in arguments
    files = [argument for argument in arguments if argument != "--strict"]
    if not files or any(name.startswith("-") for name in files):
        print("usage: check_stubs.py [--strict] FILE.folded... | --self-test", file=sys.stderr)
        return 2
    status = 0
    for name in files:
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                verdict = check(file, strict)
        except (OSError, ValueError) as error:
            print(f"check_stubs: cannot read {name}: {error}", file=sys.stderr)
            return 2
        for message in verdict.messages:
            print(message)
        print(verdict.summary())
        if verdict.messages:
            status = 1
        if strict and not sum(verdict.stacks.values()):
            print(f"check_stubs: {name} contains no kernel", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
