#!/usr/bin/env python3
"""Checks that the files of each crate import each other in one direction, without cycles.

    tests/check_imports.py [ROOT.rs...]
    tests/check_imports.py --self-test

Without arguments, checks the crates of this repository and its end-to-end tests.

Cargo rejects cycles between crates, but the compiler accepts them between the files of one. An import is a `use`, or a path in
the code, that leads to another file; a re-exported name belongs to the file that defines it. A declaration (`mod name;`) is not
an import, and tests inside a crate may import anything.

No command of the binary may import another command. What commands share is in other files.

The drawing of the crates in docs/architecture.md must show what each crate's Cargo.toml says. A dependency that another one
leads to is not drawn, and neither are those of tests and build scripts.
"""

import re
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

# Files and folders of crates/warpscope/src, one for each command.
COMMANDS = {"demo", "diff_command", "doctor", "explain", "export_command", "hang_command", "man", "mcp_command", "monitor_command", "open", "record", "report", "top_command",
            "trace"}

WORD = r"(?:r#)?[A-Za-z_]\w*"
# Comments, strings and characters: they may contain anything, including braces.
OPAQUE = re.compile(r"""//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\[^']*|[^'\\])'""", re.S)
TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
DECLARATION = re.compile(rf"\bmod\s+({WORD})\s*;")
DEFINITION = re.compile(rf"(?<!')\b(?:struct|enum|fn|const|static|type|trait|union|mod|macro_rules!)\s+(?:mut\s+)?({WORD})")
USE = re.compile(r"\buse\s+([^;]+);")
PATH = re.compile(rf"(?<![\w:])({WORD}(?:\s*::\s*{WORD})+)")
# The drawing of the crates, and how many lines it may have.
DRAWING = re.compile(r"^## The crates\n.*?^```\n(.*?)^```$", re.S | re.M)
DRAWING_LINES = 21


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


def dependencies(home):
    """Returns, for each crate, the other crates of this repository that it depends on."""
    crates = {file.parent.name: tomllib.loads(file.read_text()) for file in home.glob("crates/*/Cargo.toml")}
    return {name: set(crate.get("dependencies", ())) & set(crates) for name, crate in crates.items()}


def reduced(graph):
    """Leaves out each dependency that another one leads to."""

    def reached(crate):
        return {other for next_one in graph[crate] for other in {next_one} | reached(next_one)}

    return {crate: others - {far for other in others for far in reached(other)} for crate, others in graph.items()}


def drawn(drawing):
    """Returns the dependencies in a drawing: lines lead from a crate to those on its right. A dotted line ends a row.

    `a ─┬─ b ── c` and `└─ d` below the branch: a depends on b and d, b depends on c.
    """
    graph, branches = {}, {}
    for line in drawing.splitlines():
        line, left, at = line.partition("┄")[0], None, 0
        for part in re.finditer(rf"([┬├└])|({WORD})", line):
            if any(character not in " │─" for character in line[at : part.start()]):
                raise ValueError(f"not understood: {line}")
            at = part.end()
            if part[1] == "┬":
                branches[part.start()] = left
            elif part[1] == "├":
                left = branches.get(part.start())
            elif part[1] == "└":
                left = branches.pop(part.start(), None)
            else:
                graph.setdefault(part[2], set())
                if "─" in line[: part.start()][-2:]:
                    if left is None:
                        raise ValueError(f"{part[2]} has a line from nowhere: {line}")
                    graph[left].add(part[2])
                left = part[2]
    return graph


def check_drawing(text, graph):
    """Returns how the drawing differs from the dependencies, as lines."""
    found = DRAWING.search(text)
    if not found:
        return ["docs/architecture.md: there is no drawing below `## The crates`"]
    lines = []
    if len(found[1].splitlines()) > DRAWING_LINES:
        lines.append(f"docs/architecture.md: the drawing of the crates has more than {DRAWING_LINES} lines")
    try:
        shown = drawn(found[1])
    except ValueError as error:
        return [*lines, f"docs/architecture.md: the drawing of the crates: {error}"]
    for crate, others in sorted(reduced(graph).items()):
        if crate not in shown:
            lines.append(f"docs/architecture.md: the drawing lacks the crate {crate}")
        for other in sorted(others - shown.get(crate, set())):
            lines.append(f"docs/architecture.md: the drawing lacks a line from {crate} to {other}")
    for crate, others in sorted(shown.items()):
        for other in sorted(others - reduced(graph).get(crate, set())):
            direct = other in graph.get(crate, set())
            reason = "another dependency leads there" if direct else f"crates/{crate}/Cargo.toml has no such dependency"
            lines.append(f"docs/architecture.md: the drawing has a line from {crate} to {other}: {reason}")
        if crate not in graph:
            lines.append(f"docs/architecture.md: the drawing has a crate {crate}, which does not exist")
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

    GRAPH = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set(), "e": {"c"}}

    def check_drawing(self, *rows):
        text = "# Title\n\n## The crates\nWords.\n\n```\n" + "".join(f"{row}\n" for row in rows) + "```\n"
        return [line.removeprefix("docs/architecture.md: ") for line in check_drawing(text, self.GRAPH)]

    def test_a_true_drawing(self):
        self.assertEqual(self.check_drawing("a ─┬─ b ── c", "   │", "   └─ d ┄ e, by its build script", "e ── c"), [])

    def test_branches_within_branches(self):
        rows = ["a ─┬─ b ─┬─ c", "   │     └─ d", "   └─ e"]
        self.assertEqual(drawn("\n".join(rows)), {"a": {"b", "e"}, "b": {"c", "d"}, "c": set(), "d": set(), "e": set()})

    def test_a_wrong_drawing(self):
        lines = self.check_drawing("a ─┬─ b", "   └─ c", "e ── c ── f")
        self.assertEqual(
            lines,
            [
                "the drawing lacks a line from a to d",
                "the drawing lacks a line from b to c",
                "the drawing lacks the crate d",
                "the drawing has a line from a to c: another dependency leads there",
                "the drawing has a line from c to f: crates/c/Cargo.toml has no such dependency",
                "the drawing has a crate f, which does not exist",
            ],
        )

    def test_a_drawing_that_cannot_be_read(self):
        self.assertEqual(self.check_drawing("└─ b"), ["the drawing of the crates: b has a line from nowhere: └─ b"])
        self.assertEqual(self.check_drawing("a ══ b"), ["the drawing of the crates: not understood: a ══ b"])
        self.assertEqual(check_drawing("# Title", {}), ["docs/architecture.md: there is no drawing below `## The crates`"])

    def test_a_long_drawing(self):
        rows = ["a ─┬─ b ── c", "   └─ d", "e ── c", *[""] * DRAWING_LINES]
        self.assertEqual(self.check_drawing(*rows), ["the drawing of the crates has more than 21 lines"])


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
    if not sys.argv[1:]:
        lines += check_drawing((home / "docs/architecture.md").read_text(), dependencies(home))
    print("\n".join(lines).replace(f"{home}/", ""), end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
