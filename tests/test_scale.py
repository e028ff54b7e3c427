"Large programs: they work on every device, and the work grows no faster than the program."
import cProfile
import re
import numpy as np
import pytest
from conftest import our_calls
from tinylit import Tensor
from tinylit.backend.device import device as find_device
from tinylit.compiler.fuse import fuse
from tinylit.compiler.realize import canonical
from tinylit.graph.node import workspace


def chain(n: int, shift: float) -> Tensor:
    "A tensor that is `n` elementwise operations away from a leaf."
    x = Tensor(np.linspace(-1, 1, 64, dtype=np.float32))
    for i in range(n): x = x * 0.75 + shift if i % 2 else x.relu()
    return x


def calls(work) -> int:
    "Function calls that `work()` takes, compiling included: a measure of time that does not depend on the machine."
    profile = cProfile.Profile()
    profile.runcall(work)
    return our_calls(profile)


def test_ten_thousand_operations_in_a_row(device):
    y = np.linspace(-1, 1, 64, dtype=np.float32)
    for i in range(10_000): y = y * np.float32(0.75) + np.float32(0.5) if i % 2 else np.maximum(y, 0)
    np.testing.assert_allclose(chain(10_000, 0.5).numpy(), y, rtol=1e-5)


def test_a_long_sum(device):
    parts = [Tensor([float(i)] * 16) for i in range(3_000)]
    total = parts[0]
    for p in parts[1:]: total = total + p
    assert total.tolist() == [3_000 * 2_999 / 2] * 16


def test_a_tall_stack(device):
    parts = [Tensor([float(i), -float(i)]) for i in range(2_000)]
    stacked = parts[0].stack(*parts[1:])
    assert np.array_equal(stacked.numpy(), [[i, -i] for i in range(2_000)])


PROGRAMS = {
    "chain": lambda n: chain(n, 0.25 + n / 2**20).numpy(),
    "sum": lambda n: sum((Tensor([1.0, float(i)]) for i in range(n // 5)), Tensor([0.0, 0.0])).numpy(),
    "stack": lambda n: Tensor.stack(*[Tensor([float(i)]) for i in range(n // 5)]).numpy(),
}

@pytest.mark.parametrize("program", PROGRAMS)
def test_work_grows_with_the_program(device, program):
    PROGRAMS[program](100)                                # whatever happens once has happened
    assert calls(lambda: PROGRAMS[program](4_000)) <= 12 * calls(lambda: PROGRAMS[program](400))


@pytest.mark.parametrize("far", [2**31 - 1, -2**31, 10**6, -10**6, 7, -8])
def test_an_index_that_is_far_out_reads_the_edge(device, far):
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    i = Tensor([[far] * 3], dtype="int32")
    edge = [[4.0, 5.0, 6.0]] if far > 0 else [[1.0, 2.0, 3.0]]
    assert x.gather(0, i).tolist() == edge
    guard = Tensor.zeros(2, 3).scatter_add(0, i, Tensor.ones(1, 3)).tolist()
    assert guard == ([[0.0] * 3, [1.0] * 3] if far > 0 else [[1.0] * 3, [0.0] * 3])


@pytest.mark.parametrize("turns", [3, 50, 1500])
def test_a_long_chain_of_movements(turns):
    "Divisions that lie one in the other are written down before they are too deep."
    a = np.arange(15, dtype=np.float32).reshape(3, 5)
    x = Tensor(a)
    for _ in range(turns): x, a = x.T.reshape(3, 5), a.T.reshape(3, 5)
    assert (x.numpy() == a).all() and (x.pad(((1, 0), (0, 2))).flip(1).numpy() == np.pad(a, ((1, 0), (0, 2)))[:, ::-1]).all()


def test_stores_of_one_kernel_are_not_walked_anew_for_each_other():
    def calls(n):
        x = w = Tensor(np.ones((8, 8), np.float32)).realize()
        for _ in range(n): x = x @ w
        roots, profile = canonical([x.node]), cProfile.Profile()
        with workspace(): profile.runcall(fuse, roots, x.device.limits)
        return our_calls(profile) / n
    assert calls(40) < 1.5 * calls(5)


def test_no_scratch_memory_is_larger_than_the_cache():
    "A wide product in rows that something else follows: its operand does not fit, and the loop over columns cannot move outside."
    c = find_device("c")
    x, w = (Tensor(np.ones(shape, np.float32), device="c").realize() for shape in ((64, 256), (256, 1024)))
    y = (x.layer_norm() @ w).gelu()
    assert all(4 * int(n) <= c.limits["cache"] for n in re.findall(r"float \w+\[(\d+)\]", y.source()))
    assert not y.numpy().any()
