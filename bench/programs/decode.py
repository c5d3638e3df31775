#!/usr/bin/env python3
"""Token-by-token decoding with Qwen3 from transformers in the 0.6B shape, with random weights. A step is one token."""

import pathlib
import sys

import timed

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import qwen3  # noqa: E402

TOKENS = 16


def generating(tokens):
    """Returns a function that generates this many tokens."""
    model = qwen3.create_model()
    prompt = qwen3.make_prompt(model)
    return lambda: qwen3.generate(model, prompt, tokens)


def short_step():
    return generating(1)


def main():
    options = timed.parse("Generate tokens.", steps=4, warm_up=1)
    timed.run(options, generating(TOKENS), launches_per_step=TOKENS * 1703)


if __name__ == "__main__":
    main()
