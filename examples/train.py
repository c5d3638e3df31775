#!/usr/bin/env python3
"""Trains a small transformer on synthetic text: forward, loss, backward and optimizer, each in a separate function.

    python3 train.py [STEPS]        default 50
"""

import argparse
import sys

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    sys.exit(f"train.py needs PyTorch: {error}")

VOCABULARY = 256
CONTEXT = 128
BATCH = 16
WIDTH = 256
HEADS = 8
LAYERS = 4


class Block(nn.Module):
    """One transformer layer: causal attention, then a feed-forward network, each with a residual connection."""

    def __init__(self):
        super().__init__()
        self.attention_norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)
        self.feed_forward_norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def attention(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(attended.transpose(1, 2).reshape(batch, length, WIDTH))

    def feed_forward(self, x):
        return self.down(functional.gelu(self.up(x)))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class LanguageModel(nn.Module):
    """Embeddings, the blocks, and a projection back to the vocabulary."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_batch(generator):
    """Sequences that each count up by their own step, generated on the CPU and copied to the GPU."""
    start = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
    step = torch.randint(1, 8, (BATCH, 1), generator=generator)
    text = (start + step * torch.arange(CONTEXT + 1)) % VOCABULARY
    text = text.cuda()
    return text[:, :-1], text[:, 1:]


def run_forward(model, inputs):
    return model(inputs)


def compute_loss(logits, targets):
    return functional.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))


def run_backward(loss):
    loss.backward()


def step_optimizer(optimizer):
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def train_step(model, optimizer, generator):
    inputs, targets = make_batch(generator)
    logits = run_forward(model, inputs)
    loss = compute_loss(logits, targets)
    run_backward(loss)
    step_optimizer(optimizer)
    return loss.detach()


def main():
    parser = argparse.ArgumentParser(description="Train a small transformer on made-up text.")
    parser.add_argument("steps", nargs="?", type=int, default=50)
    steps = parser.parse_args().steps
    if steps < 1:
        parser.error("steps must be at least 1")
    if not torch.cuda.is_available():
        sys.exit("train.py needs a CUDA device, and PyTorch sees none")

    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = LanguageModel().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        loss = train_step(model, optimizer, generator)
        if step == 1 or step % 10 == 0 or step == steps:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
