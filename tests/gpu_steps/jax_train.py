"""Training in JAX: a step is one call of a compiled function, and its loss is read."""

import sys
import time

import examples
import jax
import jax.numpy as jnp


def main(steps):
    mlp = examples.load("jax_mlp")
    keys = jax.random.split(jax.random.key(0), len(mlp.SIZES) + 1)
    layers = [
        (jax.random.normal(key, (rows, columns)) / rows**0.5, jnp.zeros(columns))
        for key, rows, columns in zip(keys, mlp.SIZES, mlp.SIZES[1:])
    ]
    inputs = jax.random.normal(keys[-1], (1024, mlp.SIZES[0]))
    targets = jnp.sin(inputs[:, : mlp.SIZES[-1]])
    begins = []
    for _ in range(steps):
        begins.append(time.monotonic_ns())
        layers = mlp.step(layers, inputs, targets)
        jax.block_until_ready(layers)
    examples.say(begins)


main(int(sys.argv[1]))
