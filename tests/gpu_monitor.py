#!/usr/bin/env python3
"""Compares `warpscope monitor` on a real GPU with PyTorch's own account and with nvidia-smi. Needs a GPU, PyTorch, root.

    tests/gpu_monitor.py --warpscope target/release/warpscope [--out DIR]

Three programs run at the same time: a training and a leak with PyTorch's caching allocator, and the leak without it. Prints a
table; exits with 1 if accounts differ that must agree, or if the leak is not reported with its line.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from processes import Monitor  # noqa: E402

HOLD = ROOT / "tests/gpu_monitor/hold.py"
PROGRAMS = {
    "training": ("train", {}),
    "leak": ("leak", {}),
    "leak, no cache": ("leak", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
}
KEPT_BYTES = 50 * (3 << 20)


class Metrics:
    def __init__(self, text):
        self.text = text
        self.samples = []
        for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)", text, re.MULTILINE):
            self.samples.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value)))

    def all(self, metric, **expected):
        return [(l, v) for n, l, v in self.samples if n == metric and all(l.get(k) == str(w) for k, w in expected.items())]

    def total(self, metric, **expected):
        return int(sum(value for _, value in self.all(metric, **expected)))


def named_scrape(monitor):
    """A scrape in which each suspect has its line, and how long that took: names are resolved on demand."""
    started = time.monotonic()
    while True:
        metrics = Metrics(monitor.scrape())
        waited = time.monotonic() - started
        if waited > 60 or all("site" in labels for labels, _ in metrics.all("warpscope_memory_suspect_bytes")):
            return metrics, monitor.scrape_seconds, waited


def smi():
    """Bytes by process, from nvidia-smi, which does not know processes of other namespaces."""
    done = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True)
    pairs = (line.split(",") for line in done.stdout.splitlines() if "," in line)
    return {int(pid): int(mib) << 20 for pid, mib in pairs if mib.strip().isdigit()}, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True, type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="warpscope-gpu-"))
    out.mkdir(parents=True, exist_ok=True)
    wrong = []
    monitor = Monitor(options.warpscope)
    running = {}
    for name, (what, more) in PROGRAMS.items():
        running[name] = subprocess.Popen([sys.executable, HOLD, what], env={**os.environ, **more}, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    accounts = {name: json.loads(program.stdout.readline()) for name, program in running.items()}
    metrics, took, named = named_scrape(monitor)
    (out / "metrics.txt").write_text(metrics.text)
    by_smi, smi_text = smi()
    (out / "nvidia-smi.txt").write_text(smi_text)
    columns = "{:<16} {:>8} {:>14} {:>14} {:>14} {:>14} {:>8} {:>8} {:>8} {:>8} {:>13} {:>13}"
    print(columns.format("program", "pid", "live bytes", "reserved", "peak", "reserved peak", "allocs", "PyTorch", "frees", "PyTorch",
                         "NVML process", "nvidia-smi"))
    for name, account in accounts.items():
        pid = account["pid"]
        live = metrics.total("warpscope_memory_live_bytes", pid=pid, space="device")
        peak = metrics.total("warpscope_memory_peak_bytes", pid=pid, space="device")
        allocations = metrics.total("warpscope_memory_allocations_total", pid=pid, space="device")
        frees = metrics.total("warpscope_memory_frees_total", pid=pid, space="device")
        process = metrics.total("warpscope_device_process_memory_bytes", pid=pid)
        print(columns.format(name, pid, live, account["reserved_bytes.all.current"], peak, account["reserved_bytes.all.peak"], allocations,
                             account["num_device_alloc"], frees, account["num_device_free"], process, by_smi.get(pid, "-")))
        if live < (account["reserved_bytes.all.current"] or 0):
            wrong.append(f"{name}: {live} bytes are live, PyTorch alone holds {account['reserved_bytes.all.current']}")
        if name == "leak, no cache" and (live, allocations, frees) != (KEPT_BYTES, 100, 50):
            wrong.append(f"{name}: {live} bytes, {allocations} allocations, {frees} frees, not {KEPT_BYTES}, 100, 50")
        suspects = sorted(metrics.all("warpscope_memory_suspect_bytes", pid=pid), key=lambda s: -s[1])
        for labels, value in suspects[:4]:
            print(f"    suspect: {int(value)} bytes, { {k: v for k, v in labels.items() if k not in ('pid', 'comm', 'user', 'container')} }")
        if name.startswith("leak") and not (suspects and "forget_to_free" in str(suspects[0][0])):
            wrong.append(f"{name}: the first suspect is {suspects[:1]}")
    if not all("site" in labels for labels, _ in metrics.all("warpscope_memory_suspect_bytes")):
        wrong.append("after a minute there are suspects without a line")
    print(f"all suspects had their line {named:.1f} s after the first scrape; scrape {took * 1e3:.1f} ms, {metrics.total('warpscope_resident_memory_bytes') >> 20} MiB resident")
    for program in running.values():
        program.communicate("\n")
    monitor.stop()
    print(monitor.messages, end="")
    for text in wrong:
        print(f"WRONG: {text}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
