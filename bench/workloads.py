"""What is measured: each workload once, written over the functions that every library has.

`F` stands for a library (see `peers/`): `F.matmul`, `F.softmax`, ... are its own functions, called as its users would.
"""
from collections.abc import Callable
from dataclasses import dataclass, field
import math
import numpy as np

rng = np.random.default_rng
M = 1024 * 1024


@dataclass
class Workload:
    "A function of a library and of arrays, what it costs at least, and how exact its result must be."
    name: str
    run: Callable                    # run(F, *arrays) -> an array of the library
    shapes: list                     # of the inputs; normal numbers, float32
    flops: float = 0                 # arithmetic that no algorithm in use saves
    nbytes: float = 0                # read and written at least once
    backward: bool = False           # also the gradients of the inputs named by `wrt`
    wrt: tuple = (0,)
    terms: int = 1                   # summed into one result: the tolerance grows with its root
    trains: bool = False             # a training step: run(F, parameters, x, y) -> the loss
    labels: int = 0                  # classes of the integer labels of a training step
    initial: list = field(default_factory=list)      # shapes of the parameters

    @property
    def out(self) -> tuple:
        "The shape of the result of a workload with gradients."
        return self.shapes[0]

    def arrays(self) -> list[np.ndarray]:
        "The inputs, the same in every process."
        draw = rng(0)
        return [draw.standard_normal(s, np.float32) for s in self.shapes]

    def parameters(self) -> list[np.ndarray]:
        "Weights scaled by their fan-in; vectors of ones for scales (shape (1, n)), of zeros for shifts."
        draw = rng(1)
        def one(s):
            if len(s) == 1: return np.zeros(s, np.float32)
            if len(s) == 2 and s[0] == 1: return np.ones(s[1:], np.float32)
            fan_in = math.prod(s[1:]) if len(s) == 4 else s[0]
            return draw.standard_normal(s, np.float32) / math.sqrt(fan_in)
        return [one(s) for s in self.initial]

    def targets(self) -> np.ndarray:
        "The labels of a training step."
        return rng(2).integers(0, self.labels, self.shapes[0][0]).astype(np.int32)


def chain(F, x):
    y = x * 2 + 1
    y = F.relu(y * x - 3)
    return (y * 0.5 + x) * y


def mlp(F, p, x, y):
    "784-512-512-10 with ReLU and cross entropy."
    for i in (0, 2): x = F.relu(x @ p[i] + p[i + 1])
    return F.cross_entropy(x @ p[4] + p[5], y)


def cnn(F, p, x, y):
    "Two 5x5 convolutions of 32, batch norm, pool; two 3x3 of 64, batch norm, pool; linear."
    x = F.relu(F.conv2d(x, p[0], p[1], 0))
    x = F.relu(F.conv2d(x, p[2], p[3], 0))
    x = F.max_pool(F.batch_norm(x, p[4], p[5]))
    x = F.relu(F.conv2d(x, p[6], p[7], 0))
    x = F.relu(F.conv2d(x, p[8], p[9], 0))
    x = F.max_pool(F.batch_norm(x, p[10], p[11]))
    return F.cross_entropy(F.flatten(x) @ p[12] + p[13], y)


def small_cnn(F, p, x, y):
    "The network of `tinylit demo`: two 3x3 convolutions of 16 and 32, each pooled; linear."
    for i in (0, 2): x = F.max_pool(F.relu(F.conv2d(x, p[i], p[i + 1], 1)))
    return F.cross_entropy(F.flatten(x) @ p[4] + p[5], y)


def square(n): return [(n, n)]


def matmul(n):
    return Workload(f"matmul {n}", lambda F, a, b: a @ b, [(n, n)] * 2, 2 * n**3, 12 * n * n, terms=n)


def conv(batch, backward=False):
    out = batch * 64 * 56 * 56
    return Workload(f"conv 3x3 64->64 56x56 batch {batch}" + " f+b" * backward,
                    lambda F, x, w: F.conv2d(x, w, None, 1), [(batch, 64, 56, 56), (64, 64, 3, 3)],
                    (3 if backward else 1) * 2 * out * 576, 8 * out, backward, (0, 1), 64 * 9)


def rows(name, run, flops_each, backward=False, shapes=(), wrt=(0,)):
    n = 4 * M
    return Workload(f"{name} 4096x1024" + " f+b" * backward, run, [(4096, 1024), *shapes], flops_each * n,
                    (4 if backward else 2) * 4 * n, backward, wrt, 1024)


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
    Workload("MLP step", mlp, [(128, 784)], 6 * 128 * (784 * 512 + 512 * 512 + 5120), 28 * 668672, trains=True, labels=10,
             initial=[(784, 512), (512,), (512, 512), (512,), (512, 10), (10,)]),
    Workload("CNN step on digits", small_cnn, [(128, 1, 8, 8)], 6 * 128 * (64 * 9 * 16 + 16 * 9 * 512 + 1280), 0,
             trains=True, labels=10, initial=[(16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (128, 10), (10,)]),
    Workload("CNN step on MNIST", cnn, [(128, 1, 28, 28)],
             6 * 128 * (24**2 * 25 * 32 + 20**2 * 25 * 1024 + 8**2 * 9 * 2048 + 6**2 * 9 * 4096 + 5760), 0, trains=True,
             labels=10, initial=[(32, 1, 5, 5), (32,), (32, 32, 5, 5), (32,), (1, 32), (32,),
                                 (64, 32, 3, 3), (64,), (64, 64, 3, 3), (64,), (1, 64), (64,), (576, 10), (10,)]),
]
BY_NAME = {w.name: w for w in WORKLOADS}
