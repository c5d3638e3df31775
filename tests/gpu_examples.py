"""The programs of `examples/` for the scripts that need a real GPU, and the command line of those scripts."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
PYTHON = sys.executable


def run(command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace", **more)


def prepare(description, programs):
    """Parses the arguments, creates the output directory and builds the examples."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True, type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(programs)}")
    options = parser.parse_args()
    options.out = options.out or Path(tempfile.mkdtemp(prefix="warpscope-gpu-"))
    options.out.mkdir(parents=True, exist_ok=True)
    options.names = options.names or list(programs)
    made = run(["make", "-C", EXAMPLES])
    if made.returncode:
        sys.exit(f"cannot build the examples:\n{made.stdout}{made.stderr}")
    return options
