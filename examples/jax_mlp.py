#!/usr/bin/env python3
"""JAX: trains a small network by gradient descent; every step is one call of a compiled function.

    python3 jax_mlp.py [STEPS]        default 300
"""

import argparse
import sys

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    sys.exit(f"jax_mlp.py needs JAX: {error}")

SIZES = [256, 512, 512, 16]


def predict(layers, inputs):
    for weights, bias in layers[:-1]:
        inputs = jnp.tanh(inputs @ weights + bias)
    weights, bias = layers[-1]
    return inputs @ weights + bias


def loss(layers, inputs, targets):
    return jnp.mean((predict(layers, inputs) - targets) ** 2)


@jax.jit
def step(layers, inputs, targets):
    slopes = jax.grad(loss)(layers, inputs, targets)
    return jax.tree.map(lambda value, slope: value - 0.05 * slope, layers, slopes)


def train(layers, inputs, targets, steps):
    for _ in range(steps):
        layers = step(layers, inputs, targets)
    return layers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="?", type=int, default=300)
    steps = parser.parse_args().steps
    keys = jax.random.split(jax.random.key(0), len(SIZES) + 1)
    layers = [
        (jax.random.normal(key, (rows, columns)) / rows**0.5, jnp.zeros(columns))
        for key, rows, columns in zip(keys, SIZES, SIZES[1:])
    ]
    inputs = jax.random.normal(keys[-1], (1024, SIZES[0]))
    targets = jnp.sin(inputs[:, : SIZES[-1]])
    before = float(loss(layers, inputs, targets))
    after = float(loss(train(layers, inputs, targets, steps), inputs, targets))
    print(f"{steps} steps on {jax.devices()[0].device_kind}: loss {before:.4f} to {after:.4f}")
    sys.exit(after >= before)


if __name__ == "__main__":
    main()
