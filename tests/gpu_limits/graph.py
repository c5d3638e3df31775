"""Captures a CUDA graph while kernels are launched, and runs it beside the same kernels; prints both results."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda().half()
data = torch.randn(64, 512, device="cuda").half()
with torch.no_grad():
    for _ in range(20):
        model(data)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(data)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(data)
    for _ in range(2000):
        graph.replay()
        plain = model(data)
torch.cuda.synchronize()
print("EQUAL", bool(torch.equal(captured, plain)))
