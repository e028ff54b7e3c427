"Kernels: as few as promised, no work repeated for it, in any legal order, in memory that is never shared by two at once."
import gc
import os
import weakref
from functools import lru_cache
from unittest import mock
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tinylit import Tensor, nn, optim
from tinylit.backend.device import Unavailable, cache_folder, device as find_device
from tinylit.cli import CNN
from tinylit.compiler.fuse import fuse, legal_kernels
from tinylit.compiler.index import legal_indexed
from tinylit.compiler.place import place
from tinylit.compiler.realize import ALIGN, Schedule, abstract, canonical, lifetimes, plan, schedule_of
from tinylit.graph.node import toposort, workspace
from tinylit.graph.op import ELEMENTWISE, Op
from tinylit.ledger import UNPAID, flops, wanted_by
from tinylit.tensor import fresh, realize
import tinylit.compiler.realize as realize_module

try: C = find_device("c")
except Unavailable as e: pytest.skip(str(e), allow_module_level=True)


def filled(*shape, learns=False):
    "A tensor of numbers that exist."
    x = Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype("f"), device="c")
    return x.requires_grad_(learns)


def kernels_of(*tensors): return C.kernels([t.node for t in tensors])


# --- how many kernels ---

def rows(f):
    "Forward, then forward and backward, of a function of rows."
    x, g = filled(4096, 1024, learns=True), filled(4096, 1024)
    y = f(x)
    forward = [y]
    y.backward(g)
    return forward, [y, x.grad]


def normalized():
    x, g, scale, shift = (filled(*s, learns=True) for s in ((4096, 1024), (4096, 1024), (1024,), (1024,)))
    y = x.layer_norm() * scale + shift
    forward = [y]
    y.backward(g)
    return forward, [y, x.grad, scale.grad, shift.grad]


def classified():
    x, target = filled(128, 10, learns=True), Tensor(np.arange(128) % 10, device="c").cast("int32").realize()
    loss = x.cross_entropy(target)
    loss.backward()
    return [loss, x.grad]


def adam():
    shapes = (64, 32), (64,), (32, 64), (32,), (10, 32), (10,), (8, 1, 3, 3), (8,), (16, 8, 3, 3), (16,)
    weights = [filled(*s, learns=True) for s in shapes]
    optimizer = optim.Adam(weights, lr=0.01)
    for w in weights: w.grad = filled(*w.shape)
    return wanted_by(optimizer.step)


def convolved():
    x, w = filled(8, 16, 32, 32, learns=True), filled(32, 16, 3, 3, learns=True)
    x.conv2d(w, padding=1).backward(filled(8, 32, 32, 32))
    return [x.grad]


def pooled():
    x = filled(8, 16, 32, 32, learns=True)
    y = x.max_pool2d(3, 2, 1)
    y.backward(filled(8, 16, 16, 16))
    return [y, x.grad]


def square(): return filled(1024, 1024), filled(1024, 1024)


COUNTS = {
    "a sum of rows":              (1, lambda: [(square()[0] + square()[1]).sum(1)]),
    "a layer":                    (1, lambda: [(filled(256, 256) @ filled(256, 256) + filled(256)).relu()]),
    "softmax":                    (1, lambda: rows(lambda x: x.softmax(1))[0]),
    "softmax and its gradient":   (1, lambda: rows(lambda x: x.softmax(1))[1]),
    "layer norm":                 (1, lambda: normalized()[0]),
    "layer norm and gradients":   (2, lambda: normalized()[1]),
    "cross entropy and gradient": (4, classified),
    "Adam, ten parameters":       (11, adam),
    "the gradient of an image":   (1, convolved),
    "max-pool and its gradient":  (3, pooled),
    "a product and its mirror":   (1, lambda: [(lambda t: t + t.T)(square()[0] * square()[1])]),
    "a contraction, mirrored":    (2, lambda: [(lambda s: s + s.T)(square()[0] @ square()[1])]),
    "columns":                    (2, lambda: [square()[0].softmax(0)]),
}


@pytest.mark.parametrize("name", COUNTS)
def test_kernels(name):
    most, make = COUNTS[name]
    assert len(kernels_of(*make())) <= most


def test_the_gradient_of_an_image_is_one_contraction_without_divisions():
    kernel, = kernels_of(*convolved())
    assert "/" not in kernel.source and "%" not in kernel.source


# --- no work repeated ---

class Block:
    "Two convolutions and a way past them."
    def __init__(self, inputs: int, outputs: int, stride: int):
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norms = nn.BatchNorm(outputs), nn.BatchNorm(outputs)
        self.past = ()
        if stride > 1: self.past = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm(outputs)
    def __call__(self, x):
        y = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        for layer in self.past: x = layer(x)
        return (x + y).relu()


class ResNet18:
    def __init__(self):
        self.stem, self.norm = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm(64)
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.blocks = [b for i, o, s in widths for b in (Block(i, o, s), Block(o, o, 1))]
        self.head = nn.Linear(512, 1000)
    def __call__(self, x):
        x = self.norm(self.stem(x)).relu().max_pool2d(3, 2, 1)
        for block in self.blocks: x = block(x)
        return self.head(x.mean((2, 3)))


def asked(roots) -> int:
    "Float operations of a graph: one for each element, for a reduction one for each term."
    work = [n for n in toposort(*roots) if n.dtype.is_float]
    terms = sum(n.src[-1].numel for n in work if n.op in (Op.REDUCE, Op.FOLD, Op.SCATTER))
    return terms + sum(n.numel for n in work if n.op in ELEMENTWISE - UNPAID)


def executed_share(tensors) -> float:
    "Float operations that the placed loops execute, for each one that the graph asks for."
    roots = canonical([t.node for t in tensors])
    with workspace():
        kernels, _ = fuse(roots, C.limits)
        return sum(flops(place(k.sink)) for k in kernels) / asked(roots)


@pytest.mark.parametrize("make", [lambda w: optim.SGD(w, lr=0.1), optim.Adam], ids=["SGD", "Adam"])
@pytest.mark.parametrize("batch", [32, 128])
def test_a_training_step_repeats_little(make, batch):
    net = CNN(8)
    optimizer = make(nn.parameters(net))
    x, y = filled(batch, 1, 8, 8), Tensor(np.arange(batch) % 10, device="c").cast("int32").realize()
    realize(*nn.parameters(net))
    def step():
        loss = net(x).cross_entropy(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    assert executed_share(wanted_by(step)) <= 1.3


def test_the_way_back_through_strides_repeats_little():
    "A guard chooses between numbers, and both are computed: what is behind it counts in full."
    x, w = filled(8, 16, 33, 33, learns=True), filled(32, 16, 3, 3, learns=True)
    y = (x * 1.1).exp().conv2d(w, stride=2, padding=1).exp().max_pool2d(3, 2, 1).sum()
    y.backward()
    assert executed_share([y, x.grad, w.grad]) <= 1.3


@pytest.mark.parametrize("size", [64, 224])
@pytest.mark.parametrize("training", [True, False])
def test_resnet_repeats_little(size, training):
    net = ResNet18()
    nn.train(net, training)
    realize(*nn.state_dict(net).values())
    assert executed_share([net(filled(1, 3, size, size))]) <= 1.3


# --- any legal order, the same numbers ---

def several():
    "A graph of several kernels, some of which do not wait for each other."
    a, b = filled(33, 17), filled(17, 33)
    s, t = a @ b, (b @ a).softmax(0)
    return [s + s.T, t.sum(1), (s.exp2() @ a).max(0), (t @ t).cat(t * 2)]


def run_in_order(choose) -> list[bytes]:
    "The results of `several`, its kernels in the order in which `choose` takes them from those that are ready."
    def chosen(*args):
        left, order = fuse(*args)[0], []
        while left:
            ready = [k for i, k in enumerate(left) if not any(set(k.buffers) & o.results() for o in left[:i])]
            order.append(choose(ready))
            left = [k for k in left if k is not order[-1]]
        return order, {}
    roots, buffers, _ = abstract(C, [t.node for t in TENSORS])
    with mock.patch.object(realize_module, "fuse", chosen): schedule = Schedule(C, roots, (), None)
    return [bytes(b.data()) for b in schedule.run(buffers, [])]


TENSORS = several()


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_any_legal_order_gives_the_same_numbers(random):
    assert run_in_order(random.choice) == run_in_order(lambda ready: ready[0])


def test_several_kernels_in_a_legal_order():
    with workspace():
        kernels, _ = fuse(canonical([t.node for t in several()]), C.limits)
        legal_kernels(kernels)
        for k in kernels: legal_indexed(k.sink)
        assert len(kernels) > 4
        with pytest.raises(AssertionError, match="too early"): legal_kernels(kernels[::-1])


def test_what_was_just_stored_is_not_loaded_again():
    x = filled(64)
    y = x * 2
    with workspace():
        kernel, = fuse(canonical([y.node, (y + 1).node]), C.limits)[0]
        assert len(kernel.results()) == 2 and sum(n.op is Op.LOAD for n in toposort(kernel.sink)) == 1


def test_loops_of_one_kernel_do_not_meet_by_their_numbers():
    "Two writes that share rows only: what each does with a row has loops of its own, or the same work."
    x, w = filled(32, 8), filled(8)
    a, b = (x * w).sum(1, keepdim=True) * x, (x.max(1, keepdim=True) + x.sum(1, keepdim=True)) * w
    assert len(kernels_of(a, b)) == 1
    realize(a, b)
    n, v = x.numpy(), w.numpy()
    assert np.allclose(a.numpy(), (n * v).sum(1, keepdims=True) * n, atol=1e-5)
    assert np.allclose(b.numpy(), (n.max(1, keepdims=True) + n.sum(1, keepdims=True)) * v, atol=1e-5)


# --- memory ---

LIVES = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12), st.integers(0, 6)), max_size=24)


@settings(max_examples=300, deadline=None)
@given(LIVES)
def test_two_values_that_live_at_once_do_not_overlap(drawn):
    lives = {i: (n * ALIGN, first, first + length) for i, (n, first, length) in enumerate(drawn)}
    offsets, end = plan(lives)
    assert offsets.keys() == lives.keys()
    for i, (n, first, last) in lives.items():
        assert 0 <= offsets[i] <= offsets[i] + n <= end and offsets[i] % ALIGN == 0
        for j, (m, start, stop) in lives.items():
            together = i != j and first <= stop and start <= last
            assert not together or offsets[i] + n <= offsets[j] or offsets[j] + m <= offsets[i]
    busiest = max((sum(n for n, first, last in lives.values() if first <= t <= last) for t in range(20)), default=0)
    assert busiest <= end <= sum(n for n, _, _ in lives.values())


def test_a_value_lives_from_its_first_kernel_to_its_last():
    with workspace():
        kernels, _ = fuse(canonical([t.node for t in several()]), C.limits)
        buffers = {n for k in kernels for n in k.buffers if n.op is Op.BUFFER}
        for value, (nbytes, first, last) in lifetimes(kernels, buffers).items():
            touching = [i for i, k in enumerate(kernels) if value in k.buffers]
            assert (first, last) == (touching[0], touching[-1]) and value in kernels[first].results()
            assert nbytes % ALIGN == 0 and 0 <= nbytes - value.numel * value.dtype.itemsize < ALIGN


def scheduled(x): return schedule_of(C, abstract(C, [x.node])[0], (), None)


def test_equal_graphs_share_a_schedule():
    def made(n): return scheduled((filled(n, 8) @ filled(8, n)).exp2())
    assert made(24) is made(24) and made(24) is not made(25)


def test_a_chain_needs_two_slots():
    "Each value of a chain dies when the next one exists."
    x = filled(64, 64)
    for _ in range(6): x = x @ x.T
    assert scheduled(x).arena == 2 * 64 * 64 * 4


def test_an_abstract_graph_tells_minus_zero_from_zero():
    x = filled(3)
    def form(fill): return abstract(C, [x.pad(((1, 1),), fill).node])[0]
    assert form(0.0) == form(0.0) and form(0.0) != form(-0.0) and form(float("nan")) == form(float("nan"))


def test_equal_work_is_the_same_nodes():
    a, b = filled(4, 4), filled(4, 4)
    def form(*ts): return abstract(C, [t.node for t in ts])[0]
    assert form(a @ b) == form(b @ a) != form(a @ a) == form(b @ b)
    assert form(a + 1, b + 1) == form(b + 1, a + 1) != form(a + 1, a + 1)
    copies = [abstract(C, [fresh(x.node), fresh(x.node)])[0] for x in (a, b)]
    assert copies[0] == copies[1] and len(set(copies[0])) == 2                # each copy is a node of its own


def test_what_was_computed_is_memory():
    "Nobody looks at how it was computed, however long ago."
    x = filled(4, 4, learns=True)
    y = x
    for _ in range(3): y = (y * 2 + 1).realize()            # kept by the graph, for a gradient may come
    roots, buffers, _ = abstract(C, [(y + 1).node])
    assert buffers == [y.buffer] and roots == abstract(C, [(filled(4, 4) + 1).node])[0]


def test_what_was_seen_before_is_not_simplified_again():
    a = filled(8)
    first = (a * 3.5 + 1).tolist()
    with mock.patch.object(realize_module, "rewrite", side_effect=AssertionError):
        assert (a * 3.5 + 1).tolist() == first and (filled(8) * 3.5 + 1).tolist() == first


def test_a_schedule_holds_no_memory():
    a = filled(16, 16)
    schedule, memory = scheduled(a @ a + 1), weakref.ref(a.buffer)
    del a
    gc.collect()
    assert memory() is None and schedule.kernels


def test_schedules_that_nobody_uses_are_forgotten():
    "A number that changes each step makes a new program each step; what is kept has a bound."
    assert schedule_of.cache_info().maxsize <= 1 << 12
    small = lru_cache(maxsize=3)(Schedule)
    a = filled(8)
    schedules = [small(C, abstract(C, [(a * i).node])[0], (), None) for i in (1.5, 2.5, 3.5, 4.5)]
    gone = weakref.ref(schedules[0])
    del schedules
    gc.collect()
    assert gone() is None and small.cache_info().currsize == 3


def test_equal_kernels_are_written_once():
    x = a = filled(16, 16)
    for _ in range(6): x = (x @ a).relu()
    kernels = scheduled(x).kernels
    assert len(kernels) == 6 and len({k.text for k in kernels}) <= 2


def test_code_that_nobody_can_run_leaves_the_process():
    if not os.path.exists("/proc/self/maps"): pytest.skip("no list of what is loaded")
    def loaded(): return sum(str(cache_folder()) in line for line in open("/proc/self/maps"))
    a = filled(64, 64)
    def step(i): return Schedule(C, abstract(C, [(a * (i + 0.25)).sum(1).node])[0], (), None).run([a.buffer], [])
    step(0)
    before = loaded()
    for i in range(1, 12): step(i)
    gc.collect()
    assert loaded() <= before + 5           # of one library, at most: the one that ran last
