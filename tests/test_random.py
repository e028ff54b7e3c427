"Noise: the published vectors, any order, any device, and the shape that was promised."
import math
import statistics

import pytest

from tinylit.backend.device import device as find_device
from tinylit.backend.device import unpack
from tinylit.graph.dtype import dtypes
from tinylit.graph.node import Node
from tinylit.graph.node import const
from tinylit.ops.noise import DIGITS
from tinylit.ops.noise import integers
from tinylit.ops.noise import normal
from tinylit.ops.noise import uniform
from tinylit.ops.noise import unit
from tinylit.random import manual_seed
from tinylit.random import random_bits
from tinylit.random import stream
from tinylit.random import threefry

FULL = 2**32 - 1
VECTORS = [     # key, counter, result: threefry2x32, 20 rounds, from the authors' kat_vectors
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((FULL, FULL), (FULL, FULL), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0))]


def run(*nodes: Node) -> list:
    found = [unpack(b.data(), n.dtype) for b, n in zip(find_device().run(list(nodes)), nodes)]
    return found if len(nodes) > 1 else found[0]


@pytest.fixture(autouse=True)
def fresh():
    manual_seed(0)
    yield
    manual_seed(0)


@pytest.mark.parametrize("key, counter, expected", VECTORS)
def test_published_vectors(device, key, counter, expected):
    words = [const(v, dtypes.uint32).reshape((1,)) for v in counter]
    assert run(*threefry(*key, *words)) == [[v] for v in expected]


def test_first_numbers(device):
    a, b = random_bits(2)
    assert (run(a)[0], run(b)[0]) == VECTORS[0][2]


def test_any_order_and_any_part(device):
    manual_seed(5)
    a, b = uniform((7,)), uniform((7,))
    forwards = run(a), run(b)
    manual_seed(5)
    a, b = uniform((7,)), uniform((7,))
    assert (run(b), run(a)) == forwards[::-1] and forwards[0] != forwards[1]
    manual_seed(5)
    assert run(uniform((14,))) == forwards[0] + forwards[1]
    assert run(b[3:]) == forwards[1][3:]


def test_seeds(device):
    draws = []
    for seed in (0, 1, 2, -1, 2**31):
        manual_seed(seed)
        draws.append(frozenset(run(random_bits(200)[0])))
    assert all(not a & b for i, a in enumerate(draws) for b in draws[:i])
    manual_seed(2)
    assert frozenset(run(random_bits(200)[0])) == draws[2]


def test_the_end_of_a_block(device):
    stream.drawn = 2**32 - 4
    first, _ = random_bits(4)
    second, _ = random_bits(4)
    stream.drawn = 2**32 - 3
    third, _ = random_bits(4)                    # does not fit before the end: starts in the next block
    assert run(second) == run(third) and not set(run(first)) & set(run(second))
    assert stream.drawn == 2**32 + 4


@pytest.mark.parametrize("name", DIGITS)
def test_uniform_never_reaches_one(device, name):
    d = getattr(dtypes, name)
    u = run(uniform((4000,), d))
    assert 0 <= min(u) and max(u) < 1 and abs(statistics.fmean(u) - 0.5) < 0.02
    words = (const(v, dtypes.uint32).reshape((1,)) for v in (0, FULL))
    assert run(*(unit(w, d, w) for w in words)) == [[0], [1 - 2.0**-DIGITS[name]]]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_normal(device, name):
    z = run(normal((4000,), getattr(dtypes, name)))
    assert abs(statistics.fmean(z)) < 0.07 and abs(statistics.pvariance(z) - 1) < 0.1
    assert all(map(math.isfinite, z)) and max(map(abs, z)) < 6
    within = sum(abs(v) < 1 for v in z) / 4000
    assert abs(within - 0.6827) < 0.03


def test_integers(device):
    dice = run(integers((6000,), 1, 7))
    assert sum((dice.count(k) - 1000)**2 / 1000 for k in range(1, 7)) < 20.5          # chi-squared, 99.9 %
    assert set(dice) == set(range(1, 7))
    large = run(integers((3000,), 0, 3 * 2**30, dtypes.uint32))
    assert abs(sum(v < 2**30 for v in large) / 3000 - 1 / 3) < 0.04                     # with % it would be a half
    assert set(run(integers((200,), -3, -1))) == {-3, -2} and set(run(integers((20,), 5, 6))) == {5}
    for low, high in ((3, 3), (4, 3), (0, 2**32 + 1)):
        with pytest.raises(ValueError, match="low < high"): integers((2,), low, high)


def test_shapes():
    assert uniform((2, 3)).shape == (2, 3) and normal(()).shape == () and integers((0, 3), 0, 2).shape == (0, 3)
