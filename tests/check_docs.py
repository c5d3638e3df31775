#!/usr/bin/env python3
"""Checks documentation against the repository.

    tests/check_docs.py [--self-test] [FILE.md...]
    tests/check_docs.py --rows

Every path in backticks, and every link to a file, must exist. A path has a slash, or the extension of a file; blocks of code are
not checked. Paths are relative to the repository, links to their file.

docs/formats.md must have the rows that the source of the recording gives (`--rows` prints them): the fields of each record with their
types, and the numbers of each enumeration. What follows such a row in its line explains it.
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```.*?^```", re.S | re.M)
NAME = re.compile(r"`([\w.-]*/[\w./-]*|[\w-]+\.(?:md|toml|rs|py|c|h|js|sh|yml))`")
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")


def missing_paths(file, home=HOME):
    """Yields a line for each path in a document that does not exist."""
    text = BLOCK.sub("", file.read_text())
    for path in NAME.findall(text):
        if not (home / path).exists():
            yield f"{file}: `{path}` does not exist"
    for path in LINK.findall(text):
        if not (file.parent / path).exists():
            yield f"{file}: the link to {path} leads nowhere"


ENCODED = HOME / "crates/model/src/recording"
EVENTS = [HOME / "crates/model/src/event.rs", *sorted((HOME / "crates/model/src/event").glob("*.rs"))]
COMMENT = re.compile(r"//[^\n]*|#\[[^\n]*\]")
# Types with an encoding of their own. Others are numbers, enumerations and structures.
TYPES = {
    "u8": "u8", "bool": "bool", "String": "text", "Arc<str>": "text", "Vec<u8>": "bytes", "Uuid": "uuid", "Frame": "frame",
    "Option<u32>": "opt", "Option<i32>": "status", "Option<KernelRef>": "kernel", "[u32; 3]": "(n n n)", "DeviceIdentity": "identity",
}  # fmt: skip
NUMBERS = {"u16", "u32", "u64"}
# The first tag of a record with a length.
WITH_LENGTH = 16


def words(name, between="_"):
    """`KernelName`: `kernel_name`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", between, name).lower()


def macro(text, name):
    """Returns what the macro is called with, without comments."""
    return COMMENT.sub("", re.search(rf"^{name}! \{{\n(.*?)^\}}", text, re.S | re.M)[1])


def split(text):
    """Returns the parts between commas that are not within brackets."""
    parts, depth = [""], 0
    for one in text:
        depth += (one in "([") - (one in ")]")
        if one == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += one
    return [" ".join(part.split()) for part in parts if part.strip()]


class Source:
    """The definition of the recording in the source."""

    def __init__(self):
        self.events = COMMENT.sub("", "\n".join(file.read_text() for file in [*EVENTS, HOME / "crates/cuda/src/occupancy.rs"]))
        self.fields = (ENCODED / "field.rs").read_text()
        self.ids = re.findall(r"^    (\w+): ", macro(self.fields, "ids"), re.M)

    def type(self, rust):
        """Returns how a Rust type is written."""
        if rust in TYPES:
            return TYPES[rust]
        if rust in NUMBERS or rust in self.ids:
            return "n"
        if several := re.fullmatch(r"Vec<(.*)>", rust):
            return f"[{self.type(several[1])}]"
        if several := re.fullmatch(r"\((.*)\)", rust):
            return f"({' '.join(self.type(one) for one in several[1].split(', '))})"
        return words(rust)

    def members(self, name, inside=None):
        """Returns the types of the fields of a structure, or of a variant of an enumeration."""
        body = re.search(rf"^pub (?:struct|enum) {name} \{{\n(.*?)^\}}", self.events, re.S | re.M)[1]
        if inside:
            body = re.search(rf"^    {inside} \{{\n(.*?)^    \}}", body, re.S | re.M)[1]
        return dict(re.findall(r"^ +(?:pub )?(\w+): (.*),$", body, re.M))

    def field(self, text, members):
        """Returns a field of `events!` as specified: its name, its type unless that is `n`, whether it may be absent."""
        name = re.match(r"\w+", text)[0]
        rust = members[name]
        if text == f"{name} as times":
            return f"{name} [interval]"
        optional = text.endswith("?")
        distance = re.search(r" from (\w+)$", text)
        written = f"d({distance[1]})" if distance else self.type(re.fullmatch(r"Option<(.*)>", rust)[1] if optional else rust)
        may_end = " or " in text or " unless 0" in text
        return f"{name} {written}".removesuffix(" n") + ("?" if optional else "*" if may_end else "")

    def record(self, name, body):
        """Returns the fields of a record."""
        fields = []
        members = self.members(name)
        for part in split(body):
            if flags := re.fullmatch(r"\[flags (.*); has (.*)\]", part):
                fields.append(f"flags u8 ({flags[1]}, {flags[2]})")
            else:
                fields.append(self.field(part, members))
        return ", ".join(fields)

    def rows(self):
        """Yields the rows of all tables: records, structures, work, enumerations."""
        records = re.search(r"^macro_rules! events \{\n(.*?)^\}", self.events, re.S | re.M)[1]
        for tag, name, body in re.findall(r"^ +(\d+) = (\w+) \{(.*?)\}(?: \[[^]]*\])*$", records, re.S | re.M):
            if int(tag) >= WITH_LENGTH:
                yield f"| {tag} | {words(name, ' ')} | `{self.record(name, body)}` |"
        for text in re.findall(r"^structures! \{\n(.*?)^\}", self.fields, re.S | re.M):
            for name, body in re.findall(r"(\w+) \{(.*?)\}", text, re.S):
                yield f"| `{words(name)}` | `{self.record(name, body)}` |"
        for tag, name, body in re.findall(r"(\d+) = (\w+) \{(.*?)\}", macro(self.fields, "variants")):
            members = self.members("Work", name)
            yield f"| {tag} {words(name)} | `{', '.join(self.field(one, members) for one in body.strip().split(', '))}` |"
        for name in re.findall(r"^    (\w+): ", macro(self.fields, "enumerations"), re.M):
            yield f"| `{words(name)}` | {', '.join(self.numbers(name))} |"

    def numbers(self, name):
        """Yields the values of an enumeration with their numbers."""
        body = re.search(rf"^pub enum {name} \{{\n(.*?)^\}}", self.events, re.S | re.M)[1]
        for at, (value, number) in enumerate(re.findall(r"^    (\w+)(?: = (\d+))?,$", body, re.M)):
            yield f"{number or at} {words(value)}"


def wrong_rows(text, rows):
    """Yields what the specification lacks, and records that do not exist."""
    for row in rows:
        if not any(line.startswith(row) for line in text.splitlines()):
            yield f"docs/formats.md lacks this row: {row}"
    # 37 is only read.
    known = {"37"} | {row.split(" ")[1] for row in rows}
    for tag in re.findall(r"^\| (\d+) \|", text, re.M):
        if int(tag) >= WITH_LENGTH and tag not in known:
            yield f"docs/formats.md has a record {tag}, which does not exist"


class Test(unittest.TestCase):
    def missing(self, text):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            (home / "docs").mkdir()
            for name in ("test", "deny.toml", "docs/a.md"):
                (home / name).write_text("")
            file = home / "docs/b.md"
            file.write_text(text)
            return [line.partition(": ")[2] for line in missing_paths(file, home)]

    def test_paths(self):
        self.assertEqual(self.missing("`./test`, `docs/a.md`, `docs/`, `deny.toml`, `cargo test`, `fold`, `a.b`\n"), [])
        self.assertEqual(self.missing("`docs/c.md` `c.toml`"), ["`docs/c.md` does not exist", "`c.toml` does not exist"])

    def test_links(self):
        self.assertEqual(self.missing("[a](a.md#x), [b](../test), [c](https://example.org/), [d](#here)"), [])
        self.assertEqual(self.missing("[a](test)"), ["the link to test leads nowhere"])

    def test_code_is_skipped(self):
        self.assertEqual(self.missing("```\n`no/such`\n```\n`no/other`"), ["`no/other` does not exist"])

    def test_records(self):
        source = Source()
        members = ["id: StackId", "at: Vec<(u32, String)>", "end: u64", "out: Option<u64>"]
        source.events = "\n".join(["pub struct One {", *(f"    pub {member}," for member in members), "}"])
        body = " id, at or f(g(a), b), end from id, [flags a 1, b 4; has out 2], out?, end unless 0 from id, "
        fields = "id, at [(n text)]*, end d(id), flags u8 (a 1, b 4, out 2), out?, end d(id)*"
        self.assertEqual(source.record("One", body), fields)
        self.assertEqual(list(wrong_rows("| 16 | one | `id n` | x |", ["| 16 | one | `id n` |"])), [])
        lines = list(wrong_rows("| 16 | one | `id n` |\n| 99 | two |", ["| 16 | one | `id u8` |"]))
        self.assertEqual([line[:31] for line in lines], ["docs/formats.md lacks this row:", "docs/formats.md has a record 99"])


def main():
    arguments = sys.argv[1:]
    rows = list(Source().rows())
    if arguments == ["--rows"]:
        print("\n".join(rows))
        return
    if "--self-test" in arguments:
        arguments.remove("--self-test")
        if not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful():
            sys.exit(1)
    lines = [line for name in arguments for line in missing_paths(Path(name).resolve())]
    lines += wrong_rows((HOME / "docs/formats.md").read_text(), rows)
    print("\n".join(lines).replace(f"{HOME}/", ""), end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
