"The ledger counts what is computed, no more and no less."
from functools import partial
import pytest
from tinylit import Tensor
from tinylit.backend.device import CompilingDevice
from tinylit.compiler.realize import abstract
from tinylit.ledger import STAIRS, digits_step, ledger, peak, staircase, stairs, work

count = partial(ledger, upto="numpy")      # a kernel an operation, on whatever device
compiles = pytest.mark.skipif(not isinstance(Tensor(0).device, CompilingDevice), reason="the default device does not compile")


def ready(*shape): return Tensor.ones(*shape).contiguous().realize()


def test_elementwise():
    a, b = ready(10), ready(10)
    account = count(a * b + 1)
    assert (account.kernels, account.reads, account.writes, account.flops) == (2, 80 + 40, 40 + 40, 20)
    assert account.peak == 4 * 40


def test_a_view_costs_nothing():
    a = ready(4, 6)
    account = count(a.T.reshape(2, 12).flip(1))
    assert account.kernels == account.moved == account.flops == 0


def test_a_broadcast_reads_its_own_memory():
    a, row = ready(100, 10), ready(10)
    assert count(a + row).reads == 4000 + 40


def test_the_same_source_is_read_once():
    a = ready(10)
    assert count(a * a).reads == 40


def test_reduction_counts_its_terms():
    account = count(ready(8, 5).sum(1))
    assert (account.flops, account.reads, account.writes) == (40, 160, 32)


def test_what_was_computed_is_not_counted_again():
    a = (ready(10) + 1).realize()
    assert count(a).kernels == 0 and count(a * 2).kernels == 1


def test_peak_of_a_chain_is_two_values():
    x = ready(1000)
    y = x
    for _ in range(10): y = y + 1
    assert count(y).peak == 3 * 4000       # the leaf stays; one value is read, one written


def test_peak_is_what_the_operations_hold():
    x = ready(1000)
    y = (x + 1) * (x + 2) + (x + 3)
    roots, _, _ = abstract(y.device, [y.node])
    assert peak(roots) == count(y).peak <= 4000 * (1 + len(work(roots)))


def test_several_and_nested_tensors():
    a = ready(3)
    b, c = a + 1, a + 2
    assert count([b, {"c": c}]).kernels == 2
    with pytest.raises(ValueError, match="nothing is computed"): count([])


def test_a_step_is_counted_and_taken():
    step = digits_step()
    first = count(step)
    losses = [step().item() for _ in range(3)]
    assert count(step).counts() == first.counts()
    assert losses[0] > losses[1] > losses[2]
    assert first.times(2)["least"] > 0


def test_table_and_picture():
    account = count(digits_step())
    assert repr(account).startswith(f"{account.nodes:,} nodes, {account.kernels:,} kernels")
    assert f"{account.moved:,}" in repr(account) and "<table>" in account._repr_html_()
    assert account.picture().svg.count("<rect") == 1 + 2 * 16


@compiles
def test_kernels_are_those_that_run():
    a, b = ready(64, 32), ready(32, 16)
    y = (a @ b).relu()
    account = ledger(y)
    assert account.kernels == len(y.kernels()) == 1
    assert account.reads == 4 * (64 * 32 + 32 * 16) and account.writes == 4 * 64 * 16
    assert account.peak == account.moved


@compiles
def test_stairs_go_down():
    steps = stairs(digits_step())
    assert tuple(steps) == STAIRS
    for what in steps["numpy"]:
        costs = [s[what] for s in steps.values()]
        assert costs[-1] < costs[0] / 2 and all(b <= 1.01 * a for a, b in zip(costs, costs[1:])), (what, costs)
    assert "numpy" in staircase(digits_step(), upto="fuse").alt
