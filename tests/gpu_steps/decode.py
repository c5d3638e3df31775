"""Decoding with transformers: five requests, a step is a token. The streamer hears of each one."""

import sys
import time

import examples
import torch


class Listener:
    def __init__(self):
        self.begins = []

    def put(self, tokens):
        # The first call has the prompt.
        if tokens.numel() == 1:
            self.begins.append(time.monotonic_ns())

    def end(self):
        pass


@torch.inference_mode()
def main(tokens):
    qwen3 = examples.load("qwen3")
    model = qwen3.create_model()
    prompt = qwen3.make_prompt(model)
    listener = Listener()
    for _ in range(5):
        model.generate(
            input_ids=prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, do_sample=False,
            streamer=listener,
        )  # fmt: skip
    examples.say(listener.begins)


main(int(sys.argv[1]))
