#!/usr/bin/env python3
"""Generates tokens with Qwen3 from transformers in the 0.6B shape. The weights are random: nothing is downloaded.

    python3 qwen3.py [TOKENS]        default 64
"""

import argparse
import os
import sys
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

try:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
except ImportError as error:
    sys.exit(f"qwen3.py needs PyTorch and a transformers that has Qwen3: {error}")

PROMPT = 32


def create_model():
    config = Qwen3Config(
        vocab_size=151936,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(1)
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(previous)
    return model.eval()


def make_prompt(model):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, model.config.vocab_size, (1, PROMPT), generator=generator).cuda()


@torch.inference_mode()
def generate(model, prompt, tokens):
    return model.generate(
        input_ids=prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=tokens,
        do_sample=False,
    )


def main():
    parser = argparse.ArgumentParser(description="Generate tokens with a randomly initialised Qwen3 0.6B.")
    parser.add_argument("tokens", nargs="?", type=int, default=64)
    tokens = parser.parse_args().tokens
    if tokens < 1:
        parser.error("tokens must be at least 1")
    if not torch.cuda.is_available():
        sys.exit("qwen3.py needs a CUDA device, and PyTorch sees none")

    model = create_model()
    prompt = make_prompt(model)
    generate(model, prompt, 2)  # libraries load their kernels on first use
    torch.cuda.synchronize()
    begin = time.perf_counter()
    result = generate(model, prompt, tokens)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    produced = result.shape[1] - PROMPT
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.0f} M parameters")
    print(f"generated: {produced} tokens, {produced / seconds:.1f} tokens/s")
    if produced != tokens:
        sys.exit(f"qwen3.py asked for {tokens} tokens and got {produced}")


if __name__ == "__main__":
    main()
