#!/usr/bin/env python3
"""Checks that the files of each crate import each other in one direction, without cycles.

    tests/check_imports.py [ROOT.rs...]
    tests/check_imports.py --self-test

Without arguments, checks the crates of this repository and its end-to-end tests.

Cargo rejects cycles between crates, but the compiler accepts them between the files of one. An import is a `use`, or a path in
the code, that leads to another file; a re-exported name belongs to the file that defines it. A declaration (`mod name;`) is not
an import, and tests inside a crate may import anything.

No command of the binary may import another command. What commands share is in other files.
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

# Files and folders of crates/warpscope/src, one for each command.
COMMANDS = {"demo", "diff_command", "doctor", "export_command", "man", "monitor_command", "open", "record", "report", "top_command",
            "trace"}

WORD = r"(?:r#)?[A-Za-z_]\w*"
# Comments, strings and characters: they may contain anything, including braces.
OPAQUE = re.compile(r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\[^']*|[^'\\])'""", re.S)
TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
DECLARATION = re.compile(rf"\bmod\s+({WORD})\s*;")
DEFINITION = re.compile(rf"(?<!')\b(?:struct|enum|fn|const|static|type|trait|union|mod|macro_rules!)\s+(?:mut\s+)?({WORD})")
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(rf"(?<![\w:])({WORD}(?:\s*::\s*{WORD})+)")


def without_tests(text):
    """Removes items under `#[cfg(test)]`: declarations of a file, and blocks."""
    parts, at = [], 0
    for attribute in TEST.finditer(text):
        if attribute.start() < at:
            continue
        parts.append(text[at : attribute.start()])
        depth, at = 0, attribute.end()
        while at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
            if depth == 0 and text[at - 1] in ";}":
                break
    return "".join(parts) + text[at:]


def without_inline_modules(text):
    """Replaces inline modules (`mod name { ... }`) by their contents, as seen from their file."""
    module = re.search(rf"\bmod\s+{WORD}\s*{{", text)
    if not module:
        return text
    depth, end = 1, module.end()
    while depth and end < len(text):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    inside = re.sub(r"(?<!::)\bsuper\b", "self", text[module.end() : end - 1])
    return without_inline_modules(f"{text[: module.start()]}{inside}\n{text[end:]}")


def segments(path):
    return [segment.strip() for segment in path.split("::") if segment.strip()]


def leaves(tree):
    """Yields each path of a use tree with the name that it gets."""
    tree = tree.strip()
    group = re.fullmatch(rf"((?:{WORD}\s*::\s*)*)\{{(.*)\}}", tree, re.S)
    if not group:
        path, _, alias = tree.partition(" as ")
        path = segments(path)
        yield path, alias.strip() or path[-1]
        return
    prefix, depth, start = segments(group[1]), 0, 0
    inner = group[2] + ","
    for at, character in enumerate(inner):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            if inner[start:at].strip():
                for path, name in leaves(inner[start:at]):
                    whole = path == ["self"]
                    yield prefix + ([] if whole else path), prefix[-1] if whole and name == "self" else name
            start = at + 1


class Crate:
    """The modules of a crate, each in a file of its own, and the imports between them."""

    def __init__(self, root):
        self.folder = root.parent
        self.files, self.code, self.children, self.names, self.globs, self.defined = {}, {}, {}, {}, {}, {}
        self.load((), root, root.parent)
        self.imports = {}
        for module in self.files:
            self.find_imports(module)

    def load(self, module, file, folder):
        opaque = OPAQUE.sub(lambda found: '""' if '"' in found[0] else " ", file.read_text())
        code = without_inline_modules(without_tests(opaque))
        self.files[module], self.code[module], self.children[module] = file, code, set()
        self.defined[module] = set(DEFINITION.findall(code))
        self.names[module], self.globs[module] = {}, []
        for use in USE.finditer(code):
            for path, name in leaves(use[1]):
                if name == "*":
                    self.globs[module].append(path[:-1])
                else:
                    self.names[module].setdefault(name, path)
        for name in DECLARATION.findall(code):
            for child in (folder / f"{name}.rs", folder / name / "mod.rs"):
                if child.exists():
                    self.children[module].add(name)
                    self.load((*module, name), child, folder / name)

    def resolve(self, module, path, inside=False, seen=()):
        """Returns the module that defines the path's item, and the rest of the path; None for other crates."""
        if not path:
            return module, path
        head, rest = path[0], path[1:]
        if head == "crate":
            return self.resolve((), rest, True, seen)
        if head == "self":
            return self.resolve(module, rest, True, seen)
        if head == "super":
            return self.resolve(module[:-1], rest, True, seen)
        if head in self.children[module]:
            return self.resolve((*module, head), rest, True, seen)
        if head in self.defined[module]:
            return module, path
        if (module, head) in seen:
            return None
        seen = (*seen, (module, head))
        if head in self.names[module]:
            return self.resolve(module, self.names[module][head] + rest, False, seen)
        for glob in self.globs[module]:
            found = self.resolve(module, glob, False, seen)
            if found and not found[1]:
                found = found[0]
                if head in self.defined[found] or head in self.names[found] or head in self.children[found]:
                    return self.resolve(found, path, True, seen)
        # A macro may define it here.
        return (module, path) if inside else None

    def find_imports(self, module):
        code = self.code[module]
        paths = [path for use in USE.finditer(code) for path, _ in leaves(use[1])]
        paths += [segments(path) for path in PATH.findall(USE.sub(" ", code))]
        for path in paths:
            found = self.resolve(module, path)
            # A path that ends at a module imports nothing by itself.
            if found and found[1] and found[0] != module:
                self.imports.setdefault(module, {}).setdefault(found[0], set()).add("::".join(path))

    def cycles(self):
        """Returns the sets of modules that import each other, directly or through others (Tarjan's algorithm)."""
        index, low, stack, cycles = {}, {}, [], []

        def visit(module):
            index[module] = low[module] = len(index)
            stack.append(module)
            for other in self.imports.get(module, ()):
                if other not in index:
                    visit(other)
                    low[module] = min(low[module], low[other])
                elif other in stack:
                    low[module] = min(low[module], index[other])
            if low[module] == index[module]:
                at = stack.index(module)
                if len(stack) - at > 1:
                    cycles.append(set(stack[at:]))
                del stack[at:]

        for module in self.files:
            if module not in index:
                visit(module)
        return cycles

    def between_commands(self):
        """Yields the imports from one command of the binary to another."""
        for module, others in self.imports.items():
            for other in others:
                if module and other and module[0] != other[0] and {module[0], other[0]} <= COMMANDS:
                    yield module, other

    def describe(self, module, other):
        names = ", ".join(sorted(self.imports[module][other]))
        return f"  {self.files[module]} imports {names} from {self.files[other]}"


def check(root):
    """Returns the problems of a crate as lines."""
    crate = Crate(root)
    lines = []
    for cycle in crate.cycles():
        lines.append(f"{root}: {len(cycle)} files import each other in a cycle:")
        for module in sorted(cycle):
            lines += [crate.describe(module, other) for other in sorted(crate.imports[module]) if other in cycle]
    for module, other in crate.between_commands():
        lines += [f"{root}: a command imports another:", crate.describe(module, other)]
    return lines


class Test(unittest.TestCase):
    def check(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                file = Path(folder, *name.split("__")).with_suffix(".rs")
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
            return [line.replace(folder + "/", "") for line in check(Path(folder, "lib.rs"))]

    def test_one_direction(self):
        self.assertEqual(self.check(lib="mod a; mod b; pub use a::A;", a="pub struct A;", b="use crate::A; use super::a;"), [])

    def test_two_files(self):
        lines = self.check(lib="mod a; mod b;", a="use crate::b::{B, C as D}; pub fn f() {}", b="fn g() { super::a::f() }")
        self.assertEqual(lines[0], "lib.rs: 2 files import each other in a cycle:")
        self.assertEqual(lines[1], "  a.rs imports crate::b::B, crate::b::C from b.rs")
        self.assertEqual(lines[2], "  b.rs imports super::a::f from a.rs")

    def test_three_files(self):
        lines = self.check(lib="mod a; mod b; mod c;", a="use crate::b::X;", b="use crate::c; fn f() { c::g() }", c="use crate::a::A;")
        self.assertEqual(lines[0], "lib.rs: 3 files import each other in a cycle:")

    def test_child_and_parent(self):
        up = "use super::P;"
        self.assertEqual(len(self.check(lib="mod p;", p="mod c; pub struct P; pub use c::C;", p__c=up + "pub struct C;")), 3)
        self.assertEqual(self.check(lib="mod p;", p="mod c; pub struct P;", p__c=up), [])

    def test_a_reexport_belongs_to_its_file(self):
        files = {"p": "mod c; mod d; pub use d::D; pub use c::C;", "p__c": "use super::D; pub struct C;", "p__d": "pub struct D;"}
        self.assertEqual(self.check(lib="mod p;", **files), [])

    def test_macros_count(self):
        lines = self.check(lib="mod p;", p="mod c; macro_rules! m { () => {} } use m; const A: u8 = c::A;", p__c="super::m!();")
        self.assertEqual(len(lines), 3)

    def test_tests_and_text_do_not_count(self):
        text = '// super::b::B\nconst T: &str = "crate::b::B {"; #[cfg(test)] mod t { use crate::b::B; fn f() {} }'
        self.assertEqual(self.check(lib="mod a; mod b;", a=text + "pub struct A;", b="use crate::a::A;"), [])

    def test_inline_modules_belong_to_their_file(self):
        text = "mod c; pub use c::C; mod x { use super::f; pub fn g() { super::super::f() } }"
        self.assertEqual(self.check(lib="mod p; fn f() {}", p=text, p__c="pub struct C;"), [])

    def test_commands(self):
        lines = self.check(lib="mod record; mod trace; mod args;", record="use crate::args::A;", trace="use crate::record::R;", args="")
        self.assertEqual(lines, ["lib.rs: a command imports another:", "  trace.rs imports crate::record::R from record.rs"])


def main():
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    home = Path(__file__).resolve().parent.parent
    roots = [*home.glob("crates/*/src/lib.rs"), *home.glob("crates/*/src/main.rs"), home / "tests/main.rs"]
    binary = home / "crates/warpscope/src"
    missing = [command for command in sorted(COMMANDS) if not ((binary / command).is_dir() or (binary / f"{command}.rs").is_file())]
    if missing:
        sys.exit(f"COMMANDS is out of date: {', '.join(missing)}")
    lines = [line for root in ([Path(root) for root in sys.argv[1:]] or sorted(roots)) for line in check(root)]
    print("\n".join(lines).replace(f"{home}/", ""), end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
