#!/usr/bin/env python3
"""Traces programs on a real GPU and compares the trace with independent counts. Needs a GPU, gcc, nvcc, root.

    tests/gpu_trace.py --warpscope target/release/warpscope [--out DIR] [NAME...]

Each program runs under `warpscope trace --driver` three times. Once with CUPTI counting the driver's functions
(gpu_trace/count_calls.c): every function that CUPTI saw must be in the trace. Once with a preloaded ioctl that counts
(gpu_trace/count_ioctls.c): the counts must be the same for each device and request. Once as a user would run it, with GPU
activity: every kernel, copy and memset must belong to a call. Prints a table; exits with 1 if a check fails.
"""

import collections
import glob
import json
import os
import re
import sys
import time

from gpu_examples import EXAMPLES, PYTHON, ROOT, prepare, run

PROGRAMS = {
    "vectoradd": [EXAMPLES / "bin/vectoradd", "200"],
    "vectoradd-shared": [EXAMPLES / "bin/vectoradd-shared", "200"],
    "train.py": [PYTHON, EXAMPLES / "train.py", "5"],
    "infer.py": [PYTHON, EXAMPLES / "infer.py", "20"],
    "qwen3.py": [PYTHON, EXAMPLES / "qwen3.py"],
}


def plain(name):
    """A function's name without the suffixes for versions and default streams."""
    return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", name)


def events(path):
    with open(path) as lines:
        for line in lines:
            event = json.loads(line)
            if "event_id" in event:
                yield event


def second_count(path):
    """The lines of a counting library, summed over processes: everything but the last word is the key."""
    counts = collections.Counter()
    if path.exists():
        for line in path.read_text().splitlines():
            key, count = line.rsplit(" ", 1)
            counts[key] += int(count)
    return counts


class Check:
    def __init__(self, name, options, out, libraries):
        self.name, self.warpscope, self.out, self.libraries = name, options.warpscope, out, libraries
        self.row = {"name": name}
        self.wrong = []

    def trace(self, what, *more, environment=None):
        target = self.out / f"{self.name}.{what}.jsonl"
        command = [self.warpscope, "trace", "--as-root", "-v", "--all-calls", "--driver", *more, "-o", target, "--", *PROGRAMS[self.name]]
        started = time.monotonic()
        done = run(command, env={**os.environ, **(environment or {})})
        (self.out / f"{self.name}.{what}.txt").write_text(done.stdout + done.stderr)
        if done.returncode:
            self.wrong.append(f"{what}: exit status {done.returncode}: {done.stderr[-600:]}")
        return target, time.monotonic() - started, done.stderr

    def calls(self):
        counted = self.out / f"{self.name}.calls.count"
        environment = {"CUDA_INJECTION64_PATH": str(self.libraries / "count_calls.so"), "COUNT_CALLS": str(counted)}
        environment["WARPSCOPE_CUPTI"] = newest_cupti()
        target, _, output = self.trace("calls", "--no-gpu", environment=environment)
        seen = collections.Counter(plain(e["name"]) for e in events(target) if e["type"] == "userspace")
        by_cupti = collections.Counter()
        for name, count in second_count(counted).items():
            by_cupti[plain(name)] += count
        missing = {name: count for name, count in by_cupti.items() if not seen[name]}
        fewer = {name: (seen[name], count) for name, count in by_cupti.items() if 0 < seen[name] < count}
        self.row.update(functions_cupti=len(by_cupti), functions=sum(1 for n in seen if re.match(r"cu[A-Z]", n)))
        self.row.update(calls=sum(seen.values()), missing=missing, fewer=fewer)
        attached = re.search(r"probed (.*), attached in ([0-9.]+) ms", output)
        self.row["attached"] = attached.group(0) if attached else "?"
        if missing or not by_cupti:
            self.wrong.append(f"functions that CUPTI saw and the trace did not: {missing or 'CUPTI saw none'}")

    def ioctls(self):
        counted = self.out / f"{self.name}.ioctls.count"
        environment = {"LD_PRELOAD": str(self.libraries / "count_ioctls.so"), "COUNT_IOCTLS": str(counted)}
        target, _, _ = self.trace("ioctls", "--no-gpu", environment=environment)
        seen = collections.Counter()
        for event in events(target):
            if event["type"] == "kernel" and "request" in event.get("args", {}):
                seen[f"{event['library']} {int(str(event['args']['request']), 0)}"] += 1
        expected = second_count(counted)
        self.row.update(ioctls=sum(seen.values()), ioctls_counted=sum(expected.values()), requests=len(expected))
        if seen != expected or not expected:
            differ = {key: (seen[key], expected[key]) for key in {*seen, *expected} if seen[key] != expected[key]}
            self.wrong.append(f"ioctls as (traced, counted): {dict(list(differ.items())[:8]) or 'none at all'}")

    def pipeline(self):
        target, self.row["traced_s"], _ = self.trace("whole", "-o", self.out / f"{self.name}.json", "-o", self.out / f"{self.name}.wscope")
        started = time.monotonic()
        run(PROGRAMS[self.name])
        self.row["alone_s"] = time.monotonic() - started
        launched, work, tied = {}, 0, 0
        for event in events(target):
            key = (event.get("pid"), event.get("session", 0), event.get("correlation"))
            if event["type"] == "userspace" and "correlation" in event:
                launched.setdefault(key, event)
            elif event["type"] == "gpu":
                work += 1
        for event in events(target):
            if event["type"] == "gpu":
                tied += (event.get("pid"), event.get("session", 0), event.get("correlation")) in launched
        self.row.update(gpu=work, tied=tied)
        report = json.loads(run([self.warpscope, "report", "--json", self.out / f"{self.name}.wscope"]).stdout)
        self.row["lost"] = {cause: number for cause, number in report["lost"].items() if number}
        if tied != work or not work:
            self.wrong.append(f"{work - tied} of {work} GPU operations belong to no call")
        if self.row["lost"]:
            self.wrong.append(f"lost {self.row['lost']}")


def newest_cupti():
    places = ["/usr/local/cuda*/extras/CUPTI/lib64/libcupti.so.1*", "/usr/local/cuda*/lib64/libcupti.so.1*"]
    found = [path for place in places for path in glob.glob(place)]
    return sorted(found)[-1] if found else "libcupti.so"


def main():
    options = prepare(__doc__, PROGRAMS)
    out = options.out
    for name in ["count_calls", "count_ioctls"]:
        built = run(["gcc", "-O2", "-shared", "-fPIC", "-o", out / f"{name}.so", ROOT / f"tests/gpu_trace/{name}.c", "-ldl", "-lpthread"])
        if built.returncode:
            sys.exit(built.stderr)
    rows = []
    for name in options.names:
        check = Check(name, options, out, out)
        for step in [check.calls, check.ioctls, check.pipeline]:
            step()
        rows.append({**check.row, "wrong": check.wrong})
    columns = "{:<17} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>8} {:>8}"
    print(columns.format("program", "calls", "functions", "by CUPTI", "missing", "ioctls", "counted", "GPU work", "tied", "alone s", "traced s"))
    for row in rows:
        print(
            columns.format(
                row["name"], row["calls"], row["functions"], row["functions_cupti"], len(row["missing"]), row["ioctls"],
                row["ioctls_counted"], row["gpu"], row["tied"], f"{row['alone_s']:.1f}", f"{row['traced_s']:.1f}",
            )
        )  # fmt: skip
    for row in rows:
        print(f"{row['name']}: {row['attached']}; fewer than CUPTI (traced, CUPTI): {row['fewer']}")
        for text in row["wrong"]:
            print(f"    WRONG: {text}")
    (out / "gpu_trace.json").write_text(json.dumps(rows, indent=1))
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
