#!/usr/bin/env python3
"""Records ranks that communicate through NCCL on one real GPU, and checks which operations are identified and who waited.

    tests/gpu_ranks.py --warpscope target/release/warpscope [--out DIR] [NAME...]

Every communication kernel must be identified (but those of graphs), the number of operations must be the program's own, and the time
for which the others waited for a late rank within 5 % of what the program measured. Prints what it finds; exits with 1 if a check
fails.
"""

import json
import sys

from gpu_examples import PYTHON, ROOT, prepare, run

PROGRAMS = ROOT / "tests/gpu_ranks"


def torchrun(ranks, name, port):
    return [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", ranks, "--master-port", port, PROGRAMS / f"{name}.py"]


CASES = {
    "late": torchrun(2, "late", 29521),
    "late4": torchrun(4, "late", 29522),
    "groups": torchrun(4, "groups", 29523),
    "graph": torchrun(2, "graph", 29524),
}


def check(name, command, warpscope, out):
    recording = out / f"ranks-{name}.wscope"
    recorded = run([warpscope, "record", "--as-root", "-q", "-o", recording, "--", *command], timeout=100)
    if recorded.returncode:
        return {"name": name, "wrong": [f"exit status {recorded.returncode}: {recorded.stderr[-600:]}"]}
    said = [json.loads(line) for line in recorded.stdout.splitlines() if line.startswith('{"rank"')]
    report = json.loads(run([warpscope, "report", "--json", recording]).stdout)
    row = {"name": name, "communication": report.get("communication"), "wrong": []}
    row["collectives"] = [
        [c["communicator"][-8:], c["operation"], c["members"], c["count"], c["bytes"], c["transfer_ns"], c["waited_ns"]]
        for c in report.get("collectives", [])
    ]
    row["waits"] = report.get("waits")
    left = report["communication"]["unassigned"]
    if name != "graph" and left:
        row["wrong"].append(f"{left} kernels are not identified")
    if name.startswith("late"):
        own = {one["rank"]: one["calls"] for one in said}
        steps = [{rank: calls[step] for rank, calls in own.items()} for step in range(len(own[1]))]
        truth = sum(step[1] - time for step in steps if step[1] == max(step.values()) for time in step.values())
        found = sum(waited["waited_ns"] for waited in report.get("waits", []) if waited.get("rank") == 1)
        row.update(own_ms=truth / 1e6, found_ms=found / 1e6, off=found / truth - 1)
        row["table"] = run([warpscope, "report", recording]).stdout[:6000]
    return row


def main():
    options = prepare(__doc__, CASES)
    rows = []
    for name in options.names:
        rows.append(check(name, CASES[name], options.warpscope, options.out))
        print(json.dumps({key: value for key, value in rows[-1].items() if key != "table"}), flush=True)
    (options.out / "ranks.json").write_text(json.dumps(rows, indent=1))
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
