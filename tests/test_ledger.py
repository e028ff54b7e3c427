"The ledger counts what is computed, no more and no less."
import pytest
from tinylit import Tensor
from tinylit.ledger import Graph, digits_step, ledger, peak

pytestmark = pytest.mark.skipif(Tensor(0).device.name != "numpy", reason="counts of the numpy device: a kernel an operation")


def ready(*shape): return Tensor.ones(*shape).contiguous().realize()


def test_elementwise():
    a, b = ready(10), ready(10)
    account = ledger(a * b + 1)
    assert (account.kernels, account.reads, account.writes, account.flops) == (2, 80 + 40, 40 + 40, 20)
    assert account.peak == 4 * 40


def test_a_view_costs_nothing():
    a = ready(4, 6)
    account = ledger(a.T.reshape(2, 12).flip(1))
    assert account.kernels == account.moved == account.flops == 0


def test_a_broadcast_reads_its_own_memory():
    a, row = ready(100, 10), ready(10)
    assert ledger(a + row).reads == 4000 + 40


def test_the_same_source_is_read_once():
    a = ready(10)
    assert ledger(a * a).reads == 40


def test_reduction_counts_its_terms():
    account = ledger(ready(8, 5).sum(1))
    assert (account.flops, account.reads, account.writes) == (40, 160, 32)


def test_what_was_computed_is_not_counted_again():
    a = (ready(10) + 1).realize()
    assert ledger(a).kernels == 0 and ledger(a * 2).kernels == 1


def test_peak_of_a_chain_is_two_values():
    x = ready(1000)
    y = x
    for _ in range(10): y = y + 1
    assert ledger(y).peak == 3 * 4000       # the leaf stays; one value is read, one written


def test_peak_is_what_the_operations_hold():
    x = ready(1000)
    y = (x + 1) * (x + 2) + (x + 3)
    g = Graph([y.node], y.device)
    assert peak(g) == ledger(y).peak <= 4000 * (1 + len(g.work))


def test_several_and_nested_tensors():
    a = ready(3)
    b, c = a + 1, a + 2
    assert ledger([b, {"c": c}]).kernels == 2
    with pytest.raises(ValueError, match="nothing is computed"): ledger([])


def test_a_step_is_counted_and_taken():
    step = digits_step()
    first = ledger(step)
    losses = [step().item() for _ in range(3)]
    assert ledger(step).counts() == first.counts()
    assert losses[0] > losses[1] > losses[2]
    assert first.times(2)["least"] > 0


def test_table_and_picture():
    account = ledger(digits_step())
    assert repr(account).startswith(f"{account.nodes:,} nodes, {account.kernels:,} kernels")
    assert f"{account.moved:,}" in repr(account) and "<table>" in account._repr_html_()
    assert account.picture().svg.count("<rect") == 1 + 2 * 16
