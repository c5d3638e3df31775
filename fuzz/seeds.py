#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets to corpus/, generated with this machine's tools.

    fuzz/seeds.py --warpscope target/suite/warpscope          needs root, cc, clang, objcopy and python3

The seeds are kept in the repository, so this runs only when a format changes. Each is a few kilobytes at most.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST = 16 << 10


def put(target, name, data):
    directory = HERE / "corpus" / target
    directory.mkdir(parents=True, exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    if len(data) > MOST:
        sys.exit(f"seeds: {target}/{name} has {len(data)} bytes")
    (directory / name).write_bytes(data)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, **options).stdout


def elf_seeds(directory):
    source = directory / "small.c"
    source.write_text("int work(int x) { return x > 3 ? work(x - 1) + 1 : x; }\nint other(int x) { return work(x) * 2; }\n")
    library = directory / "small.so"
    for name, flags in {"gcc": ["-O2"], "framed": ["-O1", "-fno-omit-frame-pointer", "-g"], "packed": ["-O2", "-g", "-gz=zlib"]}.items():
        run("cc", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code", "-Wl,-z,norelro", *flags, source, "-o", library)
        put("elf", name, library.read_bytes())
    section = directory / "section"
    run("objcopy", "-O", "binary", "--only-section=.eh_frame", library, section)
    put("frames", "gcc", b"\xff" + section.read_bytes())
    put("frames", "both", b"\x80" + section.read_bytes() * 2)
    python = "python3.12"
    source.write_text('const char Py_Version_text[] = "3.12.1"; int _PyRuntime[512] = {1};\n'
                      "int _PyEval_EvalFrameDefault(int x) { return x * _PyRuntime[x]; }\nint Py_Main(void) { return 0; }\n")
    run("cc", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-O1", source, "-o", library)
    put("python_file", python, library.read_bytes())


def cubin_seeds():
    for cubin in (HERE.parent / "crates/symbols/tests/cubins").iterdir():
        put("cubin", cubin.stem, b"\x04" + cubin.read_bytes())


def section_of(elf, name):
    """Returns the bytes of a section; objcopy does not support BPF."""
    at, (count, names) = struct.unpack_from("<Q", elf, 0x28)[0], struct.unpack_from("<HH", elf, 0x3C)
    headers = [struct.unpack_from("<IIQQQQ", elf, at + 64 * index) for index in range(count)]
    for text, _, _, _, offset, size in headers:
        begin = headers[names][4] + text
        if elf[begin:elf.index(0, begin)] == name:
            return elf[offset:offset + size]


def btf_seeds(directory):
    source, made = directory / "types.c", directory / "types.o"
    source.write_text("""struct node { struct node *next; const volatile int value; };
        typedef unsigned long size; enum kind { A, B };
        int walk(struct node *first, size most) { int n = 0; while (first && most--) first = first->next, n++; return n; }
        void nothing(enum kind k, char c) { walk(0, k + c); }\n""")
    run("clang", "-target", "bpf", "-g", "-O1", "-c", source, "-o", made)
    put("btf", "clang", section_of(made.read_bytes(), b".BTF"))


def recording_seeds(warpscope, directory):
    program = directory / "calls"
    libraries = directory / "sim"
    run(warpscope, "sim", "--libs", libraries)
    run("cc", "-O1", HERE.parent / "tests/programs/calls.c", "-o", program, f"-L{libraries}", "-lcudart", "-lcuda", "-pthread")
    for name, command in {"record": ["record", "--sim", "--gpu-only"], "trace": ["trace", "--sim"]}.items():
        file = directory / f"{name}.wscope"
        run(warpscope, *command, "-q", "-o", file, "--", program, cwd=directory)
        data = file.read_bytes()
        put("recording", name, data[:MOST])
        length = struct.unpack_from("<I", data, 20)[0]
        put("recording", f"{name}-payload", data[28:28 + min(length, 4096)])


def python_seeds():
    code = "def f(x):\n  y = 0\n  for i in range(x):\n    y += (i *\n      2)\n  return y\n"
    scope = {}
    exec(compile(code, "x.py", "exec"), scope)
    table = scope["f"].__code__
    lines = table.co_linetable if hasattr(table, "co_linetable") else table.co_lnotab
    for version in range(7):
        put("python", f"lines-3.{8 + version}", bytes([version, 1, 12, 0, 0, 0]) + lines)
    put("python", "runtime", bytes([5, 1, 0, 0, 0, 0]) + b"xdebugpy" + struct.pack("<Q", 0x030D00F0) + bytes(1008))


def text_seeds():
    put("http", "get", "GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1\r\n\r\n")
    put("http", "head", "HEAD http://a:1/processes?pid=1&top=2#x HTTP/1.0\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    put("http", "accept", "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
    put("answer", "refused", b"\x01\x90\x00application/x-protobuf\n\x08\x03\x12\x04oops")
    put("answer", "partial", b"\x00\xc8\x00application/x-protobuf\n\x0a\x07\x08\x02\x12\x03bad")
    put("answer", "text", b"\x01\xad\x00text/plain\nbusy\x1b[2J\nnow")
    put("config", "all", (HERE.parent / "deploy/monitor.toml").read_text().replace("#", ""))
    put("config", "some", 'metrics-addr = "127.0.0.1:9400"\ndisplay-interval = 0.5\nmax-series = 10\npid = [1, 2]\n')
    put("patterns", "all", "cuda*,cu[A-Z]*\n?uMem*[!a]\n*Async\n\ncudaMalloc\ncuMemFree_v2\n")
    put("perf_map", "lines", bytes(8) + b"1000 10 first\n1010 10 JS:*busy /a b.js:3:14\n0x1000 0x8 again\n1008 0 nothing\n")
    put("names", "cpp", "N3foo3barIiSt6vectorIiSaIiEEEEvT_T0_")
    put("names", "rust", "NvNtCs1234_7mycrate3foo3bar")
    put("names", "hash", "N4core3ptr13drop_in_place17h0123456789abcdefE")
    put("openmetrics", "all", 'kernel<int>\0train.py:42 "f\\"\0cudaMalloc\0python3\nx\0user\0')


def hang_seeds():
    def process(rank, state, *frames):
        frames = [{"name": name, "file": file, "python": file.endswith(".py")} for name, file in frames]
        thread = {"tid": rank, "name": "a", "state": state, "ran": True, "kept": 1, "returned": 0, "whole": True, "frames": frames}
        place = {"job": "a:1", "rank": rank, "world_size": 4, "local_rank": rank, "local_world_size": 3}
        return {"pid": rank, "name": "a", "program": "a", **place, "ended": False, "threads": [thread]}

    waits = process(0, "events", ("poll", "libc.so.6"), ("all_reduce (distributed_c10d.py:9)", "/x/distributed_c10d.py"), ("f (a.py:1)", "a.py"))
    gpu = process(1, "running", ("cuStreamSynchronize", "libcuda.so.1"), ("step", "a"), ("main", "a"))
    absent = process(2, "lock", ("futex_wait", "libc.so.6"), ("load (a.py:3)", "a.py"))
    host = {"host": "h", "boot": "b", "time_ns": 1, "watched_ns": 2, "notes": ["n"]}
    put("hang", "ranks", json.dumps({"warpscope_hang": 1, "hosts": [{**host, "processes": [waits, gpu, absent]}]}))
    put("hang", "hosts", json.dumps({"warpscope_hang": 1, "hosts": [{**host, "processes": [waits]}, {**host, "host": "i", "processes": [gpu]}]}))


def mcp_seeds():
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}

    def request(number, method, **params):
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": meta, **params}}) + "\n"

    def call(tool, **arguments):
        return request(1, "tools/call", name=tool, arguments=arguments)

    run = {"recording": "x.wscope"}
    put("mcp", "discover", request(1, "server/discover") + request("two", "tools/list") + request(3, "resources/list"))
    put("mcp", "summary", call("summary", **run, filter={"kernel": "a"}) + call("findings", **run, cursor="1", max_bytes=4096))
    put("mcp", "flame", call("flame", **run, view="idle", direction="bottom_up", **{"from": "read"}, depth=3, least_share=0.1))
    put("mcp", "table", call("table", **run, table="kernels", contains="mat", cursor="2"))
    put("mcp", "timeline", call("timeline", **run, at="20ms", window_ns=5000000) + call("source", **run, frame="read (a.py:3)"))
    put("mcp", "diff", call("diff", before=["x.wscope"], after=["x.wscope"], rows=3) + call("explain", term="[handed over by f (a.py:1)]"))
    handshake = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    put("mcp", "initialize", json.dumps(handshake) + "\n" + json.dumps(cancelled) + '\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
    put("mcp", "resource", request(1, "resources/read", uri="warpscope://explain/gpu%20idle") + request(2, "resources/templates/list"))


def wire_seeds():
    # A tag and little-endian fields; the fuzzer finds the rest.
    for tag in range(1, 40):
        put("wire", f"tag-{tag:02}", bytes([tag]) + bytes(range(64)))
    for kind in range(1, 24):
        put("ring", f"kind-{kind:02}", struct.pack("<II", kind, 1) + bytes(range(1, 97)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warpscope", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        elf_seeds(directory)
        btf_seeds(directory)
        recording_seeds(Path(arguments.warpscope).resolve(), directory)
    cubin_seeds()
    python_seeds()
    text_seeds()
    hang_seeds()
    mcp_seeds()
    wire_seeds()
    size = sum(file.stat().st_size for file in (HERE / "corpus").rglob("*") if file.is_file())
    print(f"seeds: {size} bytes in all")


if __name__ == "__main__":
    main()
