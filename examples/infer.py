#!/usr/bin/env python3
"""Classifies random images with a small residual network in half precision: cuDNN convolutions, pinned copies, two streams.

    python3 infer.py [BATCHES]        default 50
"""

import argparse
import sys

try:
    import torch
    from torch import nn
except ImportError as error:
    sys.exit(f"infer.py needs PyTorch: {error}")

BATCH = 32
SIDE = 128
CLASSES = 100


class Block(nn.Module):
    """Two convolutions with a residual connection; the first may halve the image size."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def make_model():
    layers = [nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [Block(32, 64, 1), Block(64, 128, 2), Block(128, 256, 2)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, CLASSES)]
    return nn.Sequential(*layers).half().cuda().eval()


def load_pictures(pinned, stream):
    """Copies the next batch on a separate stream, overlapping the work on the current batch."""
    with torch.cuda.stream(stream):
        pictures = pinned.cuda(non_blocking=True)
    torch.cuda.current_stream().wait_stream(stream)
    pictures.record_stream(torch.cuda.current_stream())
    return pictures


def classify(model, pictures):
    return model(pictures).argmax(dim=1)


def read_answers(answers):
    return answers.cpu()


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description="Classify made-up pictures with a small residual network.")
    parser.add_argument("batches", nargs="?", type=int, default=50)
    batches = parser.parse_args().batches
    if batches < 1:
        parser.error("batches must be at least 1")
    if not torch.cuda.is_available():
        sys.exit("infer.py needs a CUDA device, and PyTorch sees none")

    torch.manual_seed(1)
    model = make_model()
    pinned = torch.randn(BATCH, 3, SIDE, SIDE).half().pin_memory()
    stream = torch.cuda.Stream()
    first = None
    for _ in range(batches):
        answers = read_answers(classify(model, load_pictures(pinned, stream)))
        first = answers if first is None else first
        if not torch.equal(answers, first):
            sys.exit("the same pictures gave different answers")
    print(f"{batches * BATCH} pictures, classes {sorted(set(first.tolist()))[:5]}")


if __name__ == "__main__":
    main()
