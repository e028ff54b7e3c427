"One element of a lazy tensor: worked out element by element in plain Python, it is what the numpy device computes."
import cProfile
import itertools
import math
import operator
import numpy as np
import pytest
from conftest import our_calls
from hypothesis import given, settings, strategies as st
from tinylit.backend.device import Buffer, device, leaf
from tinylit.backend.numpy import evaluate
from tinylit.compiler.index import Frame, at, inside, joined, legal_indexed, lower, needs, variables
from tinylit.graph.algebra import bounds, form, linear, loop, num, ranges, size, terms
from tinylit.graph.dtype import dtypes
from tinylit.graph.node import Node, iota, toposort, workspace
from tinylit.graph.op import Op
from tinylit.tensor import Tensor
from tinylit.graph.rewrite import rewrite, simplify

CPU = device("numpy")
folding = {Op.ADD: sum, Op.MUL: math.prod, Op.MAX: max}
arithmetic = {
    Op.NEG: operator.neg, Op.ADD: operator.add, Op.MUL: operator.mul, Op.DIV: operator.truediv, Op.IDIV: operator.floordiv,
    Op.MOD: operator.mod, Op.MAX: max, Op.CAST: lambda a: a, Op.EXP2: lambda a: 2.0 ** a,
    Op.LT: operator.lt, Op.LE: operator.le, Op.EQ: operator.eq, Op.AND: operator.and_,
    Op.WHERE: lambda c, a, b: a if c else b}             # both sides are computed, as in a vector


def memory(*shape, start=0) -> Node:
    "A leaf that holds start, start+1, ..."
    data = np.arange(start, start + math.prod(shape), dtype="float32").tobytes()
    return leaf(Buffer(math.prod(shape), dtypes.float32, CPU, data), shape)


class Memory(list):
    "Numbers that complain when read where there are none: an index below 0 is no index."
    def __getitem__(self, i):
        assert 0 <= i < len(self), f"position {i} of {len(self)}"
        return list.__getitem__(self, i)


def index_value(n: Node, at: dict, memory: dict):
    "The value of a form or a clamp; nothing else may stand in a position."
    if n.op is Op.LINEAR: return sum(c * run(a, at, memory) for a, c in terms(n)) + n.arg[1]
    return min(max(run(n.src[0], at, memory), n.arg[0]), n.arg[1])


def reduced(n: Node, at: dict, memory: dict):
    op, loops = n.arg
    turns = itertools.product(*(range(size(r)) for r in loops))
    return folding[op](run(n.src[0], {**at, **dict(zip(loops, t))}, memory) for t in turns)


def run(n: Node, at: dict, memory: dict):
    "The number `n`, where loop variables have the values `at`; memory: slot -> its numbers."
    def of(m): return run(m, at, memory)
    if n.op is Op.RANGE: return at[n]
    if n.op in (Op.LINEAR, Op.CLAMP): return index_value(n, at, memory)
    if n.op is Op.CONST: return n.arg
    if n.op is Op.LOAD: return memory[n.arg[0]][of(n.src[0])] if not n.arg[1] or of(n.src[1]) else 0
    if n.op is Op.REDUCE: return reduced(n, at, memory)
    extra = [n.arg] * (n.op in (Op.IDIV, Op.MOD) and n.arg is not None)
    return arithmetic[n.op](*[of(s) for s in n.src], *extra)


class Alone(dict):
    "Every value has one reader."
    def get(self, n): return 1


ALONE, SHARED = Alone(), {}


def lowered(y: Node, readers=ALONE) -> tuple:
    "(one element of `y`, its loop variables as forms, its frame)."
    k = Frame(readers)
    idx = k.loops(y.shape)
    e = at(k, y, idx)
    legal_indexed(e)
    return e, idx, k


def everything(y: Node, readers=ALONE) -> np.ndarray:
    "Every element of `y`, one by one."
    e, idx, k = lowered(y, readers)
    held = {k.slot(n): Memory(evaluate([n])[0].tolist()) for n in toposort(y) if n.op is Op.BUFFER}
    assert ranges(e) <= set(variables(idx)), "a loop variable got out of its loop"
    turns = itertools.product(*(range(s) for s in y.shape))
    points = [{f.src[0]: v for f, v in zip(idx, t) if f.src} for t in turns]
    return np.array([run(e, p, held) for p in points]).reshape(y.shape)


def same(y: Node):
    want = evaluate([y])[0]
    for form_of_y in (y, *rewrite([y], simplify)):
        for readers in (ALONE, SHARED):
            assert np.allclose(everything(form_of_y, readers), want, rtol=1e-6), form_of_y


@st.composite
def chains(draw) -> Node:
    "A random chain of movements, sums and elementwise operations over one piece of memory."
    y = memory(*draw(st.lists(st.sampled_from([1, 2, 3, 4, 5]), min_size=1, max_size=3)), start=1)
    for _ in range(draw(st.integers(1, 6))): y = draw(steps(y))
    return y


@st.composite
def steps(draw, y: Node) -> Node:
    "One more operation on `y`, kept small."
    kind, n = draw(st.sampled_from(sorted(makers))), y.numel
    a = draw(st.integers(0, y.ndim - 1)) if y.ndim else 0
    if not y.ndim: return y.reshape((1,))
    if kind == "window" and (y.shape[a] < 3 or y.ndim > 3): kind = "flip"
    if kind == "fold" and (y.ndim < 2 or y.ndim - 1 == a): kind = "flip"
    if kind in ("pad", "expand", "gather") and n > 150: kind = "shrink"
    return makers[kind](draw, y, a)


def some(draw, most: int) -> int: return draw(st.integers(0, most))


def split(draw, y: Node, a: int) -> Node:
    n = draw(st.sampled_from([d for d in range(1, y.numel + 1) if y.numel % d == 0])) if y.numel else 0
    return y.reshape((n, y.numel // n) if n else (0,))


def fold(draw, y: Node, a: int) -> Node:
    stride, dilation = 1 + some(draw, 2), 1 + some(draw, 1)
    n = (y.shape[a] - 1) * stride + (y.shape[-1] - 1) * dilation + 1 + some(draw, 2)
    return y.mop(Op.FOLD, (a, n, stride, dilation)) if y.numel and n < 40 else y


def gather(draw, y: Node, a: int) -> Node:
    where = iota(4) * draw(st.integers(1, 3)) - 2                    # out of range at both ends
    shape = tuple(4 if b == a else s for b, s in enumerate(y.shape))
    where = where.reshape(tuple(4 if b == a else 1 for b in range(y.ndim))).expand(shape)
    return Node(Op.GATHER, y.dtype, (y, where), a)


makers = {
    "permute": lambda draw, y, a: y.permute(draw(st.permutations(range(y.ndim)))),
    "flip":    lambda draw, y, a: y.flip(a),
    "shrink":  lambda draw, y, a: y.shrink([(some(draw, (s - 1) // 2), s) for s in y.shape] if y.numel else [(0, s) for s in y.shape]),
    "pad":     lambda draw, y, a: y.pad([(some(draw, 2), some(draw, 2)) for _ in y.shape], draw(st.sampled_from([0, 0, 7]))),
    "reshape": lambda draw, y, a: y.reshape((y.numel,)),
    "split":   split,
    "expand":  lambda draw, y, a: y.reshape((1, *y.shape)).expand((2, *y.shape)) if y.ndim < 4 else y,
    "window":  lambda draw, y, a: y.window(a, 2, 1 + some(draw, 1), 1 + some(draw, 1)),
    "fold":    fold,
    "gather":  gather,
    "sum":     lambda draw, y, a: y.sum(a),
    "largest": lambda draw, y, a: y.max(a) if y.shape[a] else y,
    "double":  lambda draw, y, a: y + y.flip(a),
    "less":    lambda draw, y, a: (y < 9).where(y, -y),
}


@settings(max_examples=300, deadline=None)
@given(chains())
def test_chains(y):
    turns = math.prod(size(r) for r in toposort(lowered(y)[0]) if r.op is Op.RANGE)
    if 0 < turns < 1500: same(y)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.integers(0, 1))
def test_windows_and_their_gradients(stride, dilation, padding, size_one):
    size = 1 if size_one else 3
    def values(*shape): return Tensor(np.arange(math.prod(shape), dtype="float32").reshape(shape) - 7, device="numpy")
    x, w = values(1, 2, 5, 5).realize(), values(2, 2, size, size).realize()
    x.requires_grad_(), w.requires_grad_()
    y = x.conv2d(w, stride=stride, padding=padding, dilation=dilation)
    y.backward(values(*y.shape).realize())
    for n in rewrite([y.node, x.grad.node, w.grad.node], simplify):
        assert np.allclose(everything(n), evaluate([n])[0])


def test_gates_reach_the_loads_through_every_movement():
    row = memory(3)
    for y in (row.reshape((1, 3)).expand((2, 3)), row.reshape((3, 1)).expand((3, 2)), row.reshape((3, 1)).permute((1, 0)),
              row.flip(0).reshape((1, 3)), row.window(0, 2, 1, 1), row.window(0, 2, 1, 1).mop(Op.FOLD, (0, 3, 1, 1)).reshape((3, 1)),
              row.reshape((3, 1)).expand((3, 2)).sum(1).reshape((1, 3)), row.reshape((3, 1)).max(0).reshape((1, 1))):
        for fill in (0, 7): same(y.pad([(1, 2), (2, 1)], fill))
        same(y.pad([(1, 2), (2, 1)]).pad([(0, 1), (1, 0)], 5).reshape((-1,)))


def divisions(e: Node) -> int: return sum(n.op in (Op.IDIV, Op.MOD) for n in toposort(e))


def test_what_movements_leave_behind():
    x = memory(4, 6, 5)
    for y in (x.permute((2, 0, 1)).flip(1), x.reshape((24, 5)).permute((1, 0)).reshape((5, 4, 6)),
              x.pad([(1, 1), (0, 0), (2, 0)]).shrink([(1, 5), (0, 6), (2, 7)]), x.window(2, 3, 2, 1).sum(3),
              (x + 1).reshape((120,)), (x + 1).reshape((2, 60)) * 2):
        e, *_ = lowered(y)
        assert divisions(e) == 0
        assert not any(n.op in (Op.RESHAPE, Op.PERMUTE, Op.PAD, Op.SHRINK, Op.FLIP, Op.WINDOW) for n in toposort(e))
    e, *_ = lowered(x.permute((1, 0, 2)).reshape((24, 5)))
    assert divisions(e) == 2                                            # this one must


def test_a_border_costs_as_few_comparisons_as_it_can():
    def compared(y): return sum(n.op in (Op.LT, Op.LE) for n in toposort(lowered(y)[0]))
    x = memory(6)
    assert [compared(x.pad([p])) for p in ((0, 0), (1, 0), (0, 1), (1, 1))] == [0, 1, 1, 2]
    assert inside(form(loop(0, 6)), 6) == frozenset()


def test_a_guard_stays_where_the_answer_is_not_zero():
    x = memory(6)
    kept = {name: any(n.op is Op.WHERE for n in toposort(lowered(y.pad([(1, 1)]))[0]))
            for name, y in {"x": x, "x*x": x * x, "exp2": x.exp2(), "x+1": x + 1}.items()}
    assert kept == {"x": False, "x*x": False, "exp2": True, "x+1": True}
    assert any(n.op is Op.WHERE for n in toposort(lowered(x.pad([(1, 1)], 7))[0]))
    gate, other = inside(form(loop(0, 6), -1), 9), inside(form(loop(0, 6), -2), 9)
    load = Node(Op.LOAD, dtypes.float32, (num(0), joined(gate)), (0, True))
    assert gate <= needs(load) and not other <= needs(load)
    assert not gate <= needs(load * Node(Op.LOAD, dtypes.float32, (num(0),), (1, False)))      # 0 * inf


def test_a_sum_of_sums_is_one_if_nobody_else_reads_it():
    x = memory(3, 4, 5)
    one, *_ = lowered(x.sum(2).sum(1))
    two, *_ = lowered(x.sum(2).sum(1), SHARED)
    assert sum(n.op is Op.REDUCE for n in toposort(one)) == 1 and sum(n.op is Op.REDUCE for n in toposort(two)) == 2
    mixed, *_ = lowered(x.max(2).sum(1))
    assert sum(n.op is Op.REDUCE for n in toposort(mixed)) == 2


def test_every_question_once_however_deep_and_however_shared():
    x = memory(4)
    deep, ladder = x, x
    for _ in range(20000): deep = deep + 1
    for _ in range(60): ladder = ladder * ladder
    with workspace():
        assert len(toposort(lowered(deep)[0])) < 20010
        e, _, k = lowered(ladder)
        assert len(k.answers) == 61 and divisions(e) == 0


def test_the_level_has_a_law():
    x = memory(2, 3)
    with pytest.raises(AssertionError, match="indexed level"): legal_indexed(x + 1)
    load = Node(Op.LOAD, dtypes.float32, (loop(0, 2),), (0, False))
    with pytest.raises(AssertionError, match="a load needs a form"): legal_indexed(load)
    assert Op.BUFFER not in lower and Op.CAT not in lower               # these are stored, always


def test_work_stays_linear():
    "Ten times the operations, about ten times the calls."
    def calls(n):
        y, profile = memory(4, 6), cProfile.Profile()
        for _ in range(n // 4): y = (y * 1.5 + 0.5).flip(0) + 1
        with workspace(): profile.runcall(lowered, y)
        return our_calls(profile)
    assert calls(10000) <= 12 * calls(1000)


@pytest.mark.parametrize("name", ["numpy", "c"])
def test_a_border_of_minus_zero_keeps_its_sign(name):
    x = Tensor([1.0, 2.0], device=name).pad(((1, 1),), -0.0)
    assert [math.copysign(1, v) for v in x.tolist()] == [-1, 1, 1, -1]
