#!/usr/bin/env python3
"""Records programs that time their own steps on a real GPU, and checks that warpscope finds the same steps without options.

    tests/gpu_steps.py --warpscope target/release/warpscope [--out DIR] [NAME...]

The number of steps must equal the program's own, and the median time of a step must be within 1 % of it. Prints a table; exits
with 1 if a check fails.
"""

import json
import statistics
import sys

from gpu_examples import PYTHON, ROOT, prepare, run

PROGRAMS = ROOT / "tests/gpu_steps"
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517"]

CASES = {
    "train": [PYTHON, PROGRAMS / "training.py", 200],
    "ddp": [*TORCHRUN, PROGRAMS / "ddp.py", 100],
    "decode": [PYTHON, PROGRAMS / "decode.py", 64],
    "server": [PYTHON, PROGRAMS / "server.py", 400],
    "jax": [PYTHON, PROGRAMS / "jax_train.py", 300],
}


def usual(durations):
    """The median, without a warm-up as warpscope leaves it out: the first ones, until two in a row take no more than 1.5 times the median."""
    limit = 1.5 * statistics.median(durations)
    warm = 0
    for number, duration in enumerate(durations[: len(durations) // 4], 1):
        if duration > limit and number <= warm + 2:
            warm = number
    return statistics.median(durations[warm:])


def check(name, command, warpscope, out):
    recording = out / f"{name}.wscope"
    recorded = run([warpscope, "record", "--as-root", "-q", "-o", recording, "--", *command])
    if recorded.returncode:
        return {"name": name, "wrong": [f"exit status {recorded.returncode}: {recorded.stderr[-600:]}"]}
    own = [json.loads(line)["begins"] for line in recorded.stdout.splitlines() if line.startswith('{"begins"')]
    report = json.loads(run([warpscope, "report", "--json", recording]).stdout)
    steps = report.get("steps")
    if steps is None:
        return {"name": name, "own": sum(map(len, own)), "wrong": ["no steps"]}
    durations = [after - before for begins in own for before, after in zip(begins, begins[1:])]
    row = {
        "name": name, "own": sum(map(len, own)), "count": steps["count"], "threads": steps["threads"], "place": steps["place"],
        "own_median_us": usual(durations) / 1000, "median_us": steps["median_ns"] / 1000,
        "levels": steps.get("levels"), "launches": report["launches"], "wrong": [],
    }  # fmt: skip
    row["off"] = row["median_us"] / row["own_median_us"] - 1
    if row["count"] != row["own"]:
        row["wrong"].append(f"{row['count']} steps, the program has {row['own']}")
    if abs(row["off"]) > 0.01:
        row["wrong"].append(f"the median is {row['off']:+.2%} off")
    return row


def main():
    options = prepare(__doc__, CASES)
    rows = []
    for name in options.names:
        rows.append(check(name, CASES[name], options.warpscope, options.out))
        print(json.dumps(rows[-1]), flush=True)
    (options.out / "steps.json").write_text(json.dumps(rows, indent=1))
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
