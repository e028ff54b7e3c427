"Large programs: they work on every device, and the work grows no faster than the program."
import cProfile
import re
import numpy as np
import pytest
from conftest import our_calls
from tinylit import Tensor
from tinylit.backend.device import device as find_device
from tinylit.compiler.fuse import fuse
from tinylit.compiler.place import trips
from tinylit.compiler.realize import canonical
from tinylit.graph.node import workspace
from tinylit.graph.op import Op
from tinylit.ledger import ledger, scheduled


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


def attended(n, *heads, width=16, **how):
    "Attention over n places, its operands realized."
    q, k, v = (Tensor.randn(*heads, n, width, device="c").realize() for _ in range(3))
    return q.attention(k, v, **how), [t.numpy().astype(np.float64) for t in (q, k, v)]


def test_attention_over_a_long_text_takes_memory_that_grows_with_its_length():
    "One kernel, and nothing as large as the scores: neither in memory nor, for a thread, in scratch memory."
    accounts = {n: ledger(attended(n)[0]) for n in (4096, 8192, 16384, 32768)}
    for n, account in accounts.items():
        entry, = account.entries
        own = [4 * int(size) for size in re.findall(r"float \w+\[(\d+)\]", entry.source)]
        assert account.moved == account.peak == 4 * 4 * 16 * n
        assert sum(own) <= 4 * 4 * n * 64       # four rows for each of 64 places


@pytest.mark.parametrize("causal", (False, True))
def test_attention_over_a_long_text_is_what_numpy_gives(causal):
    "5,003 places are no multiple of any tile; numpy computes row by row."
    result, (q, k, v) = attended(5003, 2, causal=causal)
    assert ledger(result).kernels == 1
    for h, i in ((h, i) for h in range(2) for i in (0, 1, 31, 32, 2500, 4999, 5002)):
        row = np.exp(k[h] @ q[h, i] / 4)
        if causal: row[i + 1:] = 0
        np.testing.assert_allclose(result.numpy()[h, i], row @ v[h] / row.sum(), rtol=1e-4, atol=1e-5)


def test_a_softmax_computes_each_exponential_once():
    "What its second loop computed again is loaded from a row. An exponential takes the bits of a float once."
    def exponentials(y):
        kernel, = scheduled(y.device, [y.node]).kernels
        bits = [(s, n) for s, n in trips(kernel.block) if s.op is Op.BITCAST and not s.dtype.is_float]
        return sum(n * s.dtype.lanes for s, n in bits)
    x = Tensor(np.ones((64, 256), np.float32), device="c").realize()
    assert exponentials(x.softmax(1)) == exponentials(x.exp()) == x.numel
    assert exponentials(x.exp() + (x * 2).exp()) == 2 * x.numel
