"""What is measured: each workload once, written over the functions that every library has.

`F` stands for a library (see `peers/`): `F.matmul`, `F.softmax`, ... are its own functions, called as its users would.
"""
from collections.abc import Callable
from dataclasses import dataclass, field
import math
import numpy as np
from networks import (CACHE, CNN, GPT2, HEADS, LAYERS, MLP, PROMPT, RESNET18, SMALL_CNN, WIDTH, WORDS,
                      cnn, decode, mlp, prefill, resnet18, small_cnn)

rng = np.random.default_rng
M = 1024 * 1024


@dataclass
class Workload:
    "A function of a library and of arrays, what it costs at least, and how exact its result must be."
    name: str
    run: Callable                    # run(F, ...) -> an array of the library
    shapes: list                     # of the inputs; normal numbers, float32
    flops: float = 0                 # arithmetic that no algorithm in use saves
    nbytes: float = 0                # read and written at least once
    kind: str = "forward"            # which function of a peer builds it
    wrt: tuple = (0,)                # backward: the inputs whose gradients are wanted
    terms: int = 1                   # summed into one result: the tolerance grows with its root
    weights: list = field(default_factory=list)      # their shapes
    scale: float | None = None       # of the weights; None is the root of the fan-in
    whole: tuple = ()                # shape of the integers that come last: labels, tokens
    below: int = 0                   # they are less than this

    def given(self) -> tuple:
        "What a peer's function `kind` takes after `run`, the same in every process."
        inputs = self.arrays()
        if self.kind == "forward": return inputs,
        if self.kind == "backward": return inputs, self.wrt, rng(3).standard_normal(self.shapes[0], np.float32)
        return self.parameters(), *inputs, *((PROMPT, self.cache()) if self.kind == "decoding" else ())

    def arrays(self) -> list[np.ndarray]:
        "The inputs."
        draw = rng(0)
        inputs = [draw.standard_normal(s, np.float32) for s in self.shapes]
        whole = [rng(2).integers(0, self.below, self.whole).astype(np.int32)] if self.below else []
        return inputs + whole

    def parameters(self) -> list[np.ndarray]:
        "The weights: by their fan-in or by `scale`; near one if the shape is (1, n), near zero if (n,)."
        draw = rng(1)
        def one(s):
            x = draw.standard_normal(s, np.float32)
            if len(s) == 1: return x * np.float32(0.1)
            if len(s) == 2 and s[0] == 1: return (1 + np.float32(0.1) * x)[0]
            x *= np.float32(self.scale or 1 / math.sqrt(math.prod(s[1:]) if len(s) == 4 else s[0]))
            return x
        return [one(s) for s in self.weights]

    def cache(self) -> list[tuple]:
        "Keys and values of each layer; what stands at PROMPT and after it must not be read."
        draw, shape = rng(4), (1, HEADS, CACHE, WIDTH // HEADS)
        return [tuple(draw.standard_normal(shape, np.float32) for _ in range(2)) for _ in range(LAYERS)]


def chain(F, x):
    y = x * 2 + 1
    y = F.relu(y * x - 3)
    return (y * 0.5 + x) * y


def square(n): return [(n, n)]


def matmul(n):
    return Workload(f"matmul {n}", lambda F, a, b: a @ b, [(n, n)] * 2, 2 * n**3, 12 * n * n, terms=n)


def conv(batch, backward=False):
    out = batch * 64 * 56 * 56
    return Workload(f"conv 3x3 64->64 56x56 batch {batch}" + " f+b" * backward,
                    lambda F, x, w: F.conv2d(x, w, None, 1), [(batch, 64, 56, 56), (64, 64, 3, 3)],
                    (3 if backward else 1) * 2 * out * 576, 8 * out, "backward" if backward else "forward", (0, 1), 64 * 9)


def rows(name, run, flops_each, backward=False, shapes=(), wrt=(0,)):
    n = 4 * M
    return Workload(f"{name} 4096x1024" + " f+b" * backward, run, [(4096, 1024), *shapes], flops_each * n,
                    (4 if backward else 2) * 4 * n, "backward" if backward else "forward", wrt, 1024)


def training(name, run, weights, shape, products, nbytes=0):
    "A step of Adam on 128 inputs; `products` are the multiplications of one forward pass over one input."
    return Workload(name, run, [(128, *shape)], 6 * 128 * products, nbytes, "training", terms=TRAINING,
                    weights=weights, whole=(128,), below=10)


TRAINING = 10_000       # the terms behind the losses of a few steps: the sums of the gradients, through Adam
DENSE, HEAD = 12 * LAYERS * WIDTH**2, WORDS * WIDTH      # multiplications of GPT-2 for each token, and for its scores
NORM = dict(shapes=((1024,), (1024,)), wrt=(0, 1, 2))
BIG, LARGE = [(16 * M,)], square(4096)
WORKLOADS = [
    Workload("chain of 8, 16M", chain, BIG, 8 * 16 * M, 128 * M),
    Workload("tanh-GELU, 16M", lambda F, x: F.gelu(x), BIG, 12 * 16 * M, 128 * M),
    *(Workload(f"sum {name}, 4096x4096", lambda F, x, a=axis: F.sum(x, a), LARGE, 16 * M, 64 * M, terms=4096)
      for name, axis in (("axis 0", 0), ("axis 1", 1), ("all", None))),
    *(Workload(f"max axis {axis}, 4096x4096", lambda F, x, a=axis: F.max(x, a), LARGE, 16 * M, 64 * M)
      for axis in (0, 1)),
    *(Workload(f"argmax axis {axis}, 4096x4096", lambda F, x, a=axis: F.argmax(x, a), LARGE, 16 * M, 64 * M)
      for axis in (0, 1)),
    rows("softmax", lambda F, x: F.softmax(x), 5), rows("softmax", lambda F, x: F.softmax(x), 10, True),
    rows("layer norm", lambda F, x, w, b: F.layer_norm(x, w, b), 8, **NORM),
    rows("layer norm", lambda F, x, w, b: F.layer_norm(x, w, b), 20, True, **NORM),
    *map(matmul, (256, 512, 1024, 2048)),
    Workload("vector @ matrix 4096", lambda F, v, m: v @ m, [(1, 4096), (4096, 4096)], 32 * M, 64 * M, terms=4096),
    Workload("matrix @ vector 4096", lambda F, m, v: m @ v, [(4096, 4096), (4096, 1)], 32 * M, 64 * M, terms=4096),
    Workload("32x768 @ 768x3072", lambda F, a, b: a @ b, [(32, 768), (768, 3072)], 2 * 32 * 768 * 3072, 9.4e6,
             terms=768),
    conv(1), conv(32), conv(32, True),
    training("MLP step", mlp, MLP, (784,), 784 * 512 + 512 * 512 + 5120, 28 * 668672),
    training("CNN step on digits", small_cnn, SMALL_CNN, (1, 8, 8), 64 * 9 * 16 + 16 * 9 * 512 + 1280),
    training("CNN step on MNIST", cnn, CNN, (1, 28, 28),
             24**2 * 25 * 32 + 20**2 * 25 * 1024 + 8**2 * 9 * 2048 + 6**2 * 9 * 4096 + 5760),
    Workload("ResNet-18 224x224", resnet18, [(1, 3, 224, 224)], 3.628e9, 4 * 11.7e6, "inference", terms=20 * 4608,
             weights=RESNET18),
    Workload("GPT-2 prefill 256", prefill, [], 2 * PROMPT * DENSE + LAYERS * 2 * PROMPT**2 * WIDTH + 2 * HEAD,
             4 * (DENSE + HEAD), "inference", terms=LAYERS * 4 * WIDTH, weights=GPT2, scale=0.02, whole=(1, PROMPT), below=WORDS),
    Workload("GPT-2 decode", decode, [], 2 * (DENSE + HEAD), 4 * (DENSE + HEAD + 2 * LAYERS * PROMPT * WIDTH), "decoding",
             terms=LAYERS * 4 * WIDTH, weights=GPT2, scale=0.02, whole=(1, 1), below=WORDS),
]
BY_NAME = {w.name: w for w in WORKLOADS}
