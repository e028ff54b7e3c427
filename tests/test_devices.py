"Random programs, of every dtype and of sizes that no vector divides, give on each device what the reference gives."
import math
import random

import numpy as np
import pytest

from tinylit.backend.device import Buffer
from tinylit.backend.device import device as find_device
from tinylit.backend.device import leaf
from tinylit.backend.device import pack
from tinylit.backend.device import unpack
from tinylit.backend.numpy import evaluate
from tinylit.graph.dtype import dtypes
from tinylit.graph.node import Node, toposort
from tinylit.ops.text import legal_graph
from tinylit.ops.text import show
from tinylit.graph.op import Op

SIZES = [1, 2, 3, 5, 8, 16, 17, 31, 64]
DTYPES = [dtypes.float64, dtypes.float64, dtypes.float32, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.float16]
PROGRAMS, PER_TEST = 8, 15      # tests, programs in each


class Program:
    "Two arrays, and a few random operations on whatever was made before."
    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        shape = tuple(rng.choice(SIZES) for _ in range(rng.randint(1, 3)))
        while math.prod(shape) > 6000: shape = shape[1:]
        d = rng.choice(DTYPES)
        self.made = [self.array(shape, d), self.array(tuple(1 if rng.random() < 0.3 else n for n in shape), d)]
        for _ in range(rng.randint(1, 9)):
            y = self.step(rng.choice(self.made))
            if 0 < y.numel <= 20_000 and y.ndim <= 5: self.made.append(y)
    def array(self, shape, d) -> Node:
        draw = {"i": lambda: self.rng.randint(-9, 9), "u": lambda: self.rng.randint(0, 9), "b": lambda: self.rng.random() < 0.5,
                "f": lambda: self.rng.randint(-40, 40) / 16 + 1 / 64}[d.kind]
        n = math.prod(shape)
        return leaf(Buffer(n, d, find_device(), pack([draw() for _ in range(n)], d)), shape)
    def roots(self) -> list[Node]:
        "The last value made, and sometimes one on the way."
        return [self.made[-1], *([self.rng.choice(self.made[2:])] if len(self.made) > 3 else [])][:self.rng.randint(1, 2)]

    def step(self, x: Node) -> Node:
        x = x if x.ndim else x.reshape(1)
        kinds = [self.elementwise, self.binary, self.binary, self.movement, self.movement, self.memory]
        return self.rng.choice(kinds if x.dtype.is_bool else [*kinds, self.reduction])(x, self.rng.randrange(x.ndim))
    def elementwise(self, x: Node, axis: int) -> Node:
        d, by = x.dtype, self.rng.choice([-3, 2, 5, 0])
        if d.is_bool: return ~x
        options = [lambda: -x, lambda: x + 1, lambda: x.cast(self.rng.choice(["float32", "int32", "float64", "int8", "bool", "int64"]))]
        if d.is_float: options += [lambda: (x * x + 1).sqrt(), lambda: x.sin(), lambda: x.relu()]
        elif d.kind == "i": options += [lambda: x // by, lambda: x % by]
        return self.rng.choice(options)()
    def binary(self, x: Node, axis: int) -> Node:
        fits = [y for y in self.made if all(a == b or 1 in (a, b) for a, b in zip(y.shape[::-1], x.shape[::-1]))]
        y = self.rng.choice(fits or [x])
        return self.rng.choice([lambda: x + y, lambda: x * y, lambda: x.maximum(y), lambda: (x < y).where(x, y)])()
    def movement(self, x: Node, axis: int) -> Node:
        rng, n = self.rng, x.shape[axis]
        lo = rng.randrange(n)
        pads = [(rng.randint(0, 2), rng.randint(0, 2)) if a == axis else (0, 0) for a in range(x.ndim)]
        return rng.choice([
            lambda: x.permute(rng.sample(range(x.ndim), x.ndim)), lambda: x.flip(axis), lambda: x.pad(pads, 1),
            lambda: x[(slice(None),) * axis + (slice(lo, rng.randint(lo + 1, n), rng.randint(1, 3)),)], lambda: x.reshape(-1),
            lambda: x.unsqueeze(axis), lambda: x.window(axis, min(n, rng.randint(1, 3)), rng.randint(1, 2))])()
    def memory(self, x: Node, axis: int) -> Node:
        shape = x.shape[:axis] + (self.rng.choice([1, 3, 7]),) + x.shape[axis + 1:]
        idx, kind = self.array(shape, dtypes.int32), self.rng.choice(["cat", "gather", "scatter", "contiguous"])
        if kind == "gather": return Node(Op.GATHER, x.dtype, (x, idx), axis)
        if kind == "cat": return Node(Op.CAT, x.dtype, (x, x.flip(axis)), axis)
        if kind == "contiguous" or x.dtype.is_bool: return Node(Op.CONTIGUOUS, x.dtype, (x,))
        return Node(Op.SCATTER, x.dtype, (x, idx, self.array(shape, x.dtype)), (self.rng.choice([Op.ADD, Op.MAX]), axis))
    def reduction(self, x: Node, axis: int) -> Node:
        options = [lambda: x.sum(axis), lambda: x.sum(axis, keepdim=True), lambda: x.max(axis, keepdim=True)]
        if x.dtype.is_float: options += [lambda: x.softmax(axis), lambda: x.mean(axis, keepdim=True)]
        if x.dtype.is_float and x.ndim == 2: options += [lambda: x @ x.T]
        return self.rng.choice(options)()


def close(ours, expected, root: Node) -> bool:
    "Equal, or for floats as near as the narrowest of them allows."
    kinds = {n.dtype.name for n in toposort(root)}
    if not any(n.dtype.is_float for n in toposort(root)): return np.array_equal(ours, expected)
    tolerance = 2e-2 if "float16" in kinds else 1e-3 if "float32" in kinds else 1e-9
    ours, expected = ours.astype(float), expected.astype(float)
    size = np.abs(expected, where=np.isfinite(expected), out=np.zeros_like(expected)).max(initial=1)
    return np.allclose(ours, expected, rtol=tolerance, atol=tolerance * size, equal_nan=True)


@pytest.mark.parametrize("block", range(PROGRAMS))
def test_random_programs(device, block):
    for seed in range(block * PER_TEST, (block + 1) * PER_TEST):
        roots = Program(seed).roots()
        legal_graph(*roots)
        found = find_device().run(roots)
        for b, n, expected in zip(found, roots, evaluate(roots)):
            ours = np.array(unpack(b.data(), n.dtype)).reshape(n.shape)
            assert close(ours, np.broadcast_to(expected, n.shape), n), f"program {seed}:\n{show(n)}"
