"""Training in PyTorch: a step is a call of `train_step` of `examples/train.py`, the loss is read ten by ten."""

import sys
import time

import examples
import torch


def main(steps):
    train = examples.load("train")
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = train.LanguageModel().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begins = []
    for step in range(steps):
        begins.append(time.monotonic_ns())
        loss = train.train_step(model, optimizer, generator)
        torch.cuda.synchronize()
        if step % 10 == 9:
            loss.item()
    examples.say(begins)


main(int(sys.argv[1]))
