#!/usr/bin/env python3
"""Checks documentation against the repository.

    tests/check_docs.py [--self-test] [FILE.md...]

Every path in backticks, and every link to a file, must exist. A path has a slash, or the extension of a file; blocks of code are
not checked. Paths are relative to the repository, links to their file.
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


def main():
    arguments = sys.argv[1:]
    if "--self-test" in arguments:
        arguments.remove("--self-test")
        if not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful():
            sys.exit(1)
    lines = [line for name in arguments for line in missing_paths(Path(name).resolve())]
    print("\n".join(lines).replace(f"{HOME}/", ""), end="\n" if lines else "")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
