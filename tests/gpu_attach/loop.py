"""Runs steps until its standard input ends: the program that `tests/gpu_attach.py` attaches to.

    loop.py train|serve|jax|cupy

Prints `ready`, then `steps COUNT SECONDS` about four times a second. The line `profile` on its standard input runs the framework's
own profiler for five steps and prints `profile EVENTS`, the number of GPU events that it saw.
"""

import gzip
import json
import queue
import sys
import tempfile
import threading
import time
from pathlib import Path


def train():
    """Launch-bound training in eager mode."""
    import torch

    layers = [torch.nn.Linear(256, 256) for _ in range(16)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(32, 256, device="cuda")

    def step():
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    return step, torch.cuda.synchronize


def serve():
    """A server that captures one CUDA graph for each batch size and replays the one that fits, as vLLM does."""
    import torch

    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda().half()
    graphs = {}
    with torch.no_grad():
        for batch in (1, 2, 4, 8):
            inputs = torch.zeros(batch, 512, device="cuda", dtype=torch.half)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                model(inputs)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = model(inputs)
            graphs[batch] = graph, inputs, outputs
    requests = 0

    def step():
        nonlocal requests
        requests += 1
        graph, inputs, outputs = graphs[1 << requests % 4]
        inputs.copy_(torch.randn_like(inputs))
        graph.replay()
        outputs.argmax(-1)

    return step, torch.cuda.synchronize


def jax():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def update(weights, data):
        return weights - 1e-3 * jax.grad(lambda w: jnp.mean(jnp.tanh(data @ w) ** 2))(weights)

    state = [jnp.ones((256, 256)), jnp.ones((32, 256))]

    def step():
        state[0] = update(*state)

    return step, lambda: state[0].block_until_ready()


def cupy():
    import cupy

    data = cupy.ones((512, 512), dtype=cupy.float32)
    saxpy = cupy.ElementwiseKernel("float32 a, float32 x", "float32 y", "y = a * x + 1", "saxpy")

    def step():
        saxpy(0.5, data @ data, data)

    return step, cupy.cuda.Device().synchronize


def jax_events(step, synchronize):
    import jax

    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            for _ in range(5):
                step()
            synchronize()
        (file,) = Path(directory).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    named = [event for event in events if event.get("name") == "process_name"]
    devices = {event["pid"] for event in named if "GPU" in event["args"]["name"]}
    return sum(event.get("ph") == "X" and event["pid"] in devices for event in events)


def torch_events(step):
    import torch
    from torch.profiler import ProfilerActivity

    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())


def main():
    step, synchronize = {"train": train, "serve": serve, "jax": jax, "cupy": cupy}[sys.argv[1]]()
    commands = queue.Queue()

    def read():
        for line in sys.stdin:
            commands.put(line.strip())
        commands.put("end")

    for _ in range(20):
        step()
    synchronize()
    threading.Thread(target=read, daemon=True).start()
    print("ready", flush=True)
    while True:
        begin, steps = time.monotonic(), 0
        while (elapsed := time.monotonic() - begin) < 0.25:
            for _ in range(10):
                step()
            synchronize()
            steps += 10
        print(f"steps {steps} {elapsed:.6f}", flush=True)
        if not commands.empty():
            if commands.get() == "end":
                return
            events = jax_events(step, synchronize) if sys.argv[1] == "jax" else torch_events(step)
            print(f"profile {events}", flush=True)


if __name__ == "__main__":
    main()
