"Gradients equal finite differences, on random graphs, in float64."
import math

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tinylit.backend.device import Buffer
from tinylit.backend.device import device as find_device
from tinylit.backend.device import leaf
from tinylit.backend.device import pack
from tinylit.backend.device import unpack
from tinylit.backend.numpy import evaluate
from tinylit.backend.numpy import meaning
from tinylit.graph.dtype import dtypes
from tinylit.graph.node import Node
from tinylit.graph.node import iota
from tinylit.ops.text import legal_graph
from tinylit.graph.node import substitute
from tinylit.graph.node import toposort
from tinylit.graph.op import Op
from tinylit.grad import grad
from tinylit.grad import vjp

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    "Tests that do not ask for a device run on the reference."
    monkeypatch.setenv("TINYLIT_DEVICE", "numpy")


def array(values, shape=None, dtype=dtypes.float64) -> Node:
    "A leaf on the default device."
    values = np.asarray(values, np.float64)
    return leaf(Buffer(values.size, dtype, find_device(), pack(values.flatten().tolist(), dtype)), shape or values.shape)


def run(*nodes: Node) -> list:
    "The values of each node, nested as its shape."
    found = find_device().run(list(nodes))
    return [np.reshape(unpack(b.data(), n.dtype), n.shape).tolist() for b, n in zip(found, nodes)]


def slopes(y: Node, *wrt: Node) -> list:
    found = run(*grad(y, list(wrt)))
    return found if len(wrt) > 1 else found[0]


def loss(y: Node) -> Node:
    "One number from the array `y`, with a weight of its own for each element."
    return (y * (iota(y.numel).cast(y.dtype) + 1).cos().reshape(y.shape)).sum()


def differences(y: Node, leaves: list[Node], h=2**-13) -> list:
    "Slopes of the number `y` with respect to every element of `leaves`, by trying."
    def at(k, i, by):
        "`y` with element `i` of leaf `k` moved."
        n = leaves[k]
        step = (iota(n.numel).eq(i)).where(by, 0.0).cast(n.dtype).reshape(n.shape)
        return float(evaluate(substitute([y], {n: n + step}))[0])
    return [np.array([(at(k, i, h) - at(k, i, -h)) / (2 * h) for i in range(n.numel)]).reshape(n.shape)
            for k, n in enumerate(leaves)]


def agree(y: Node, leaves: list[Node], rtol=2e-6, atol=1e-6):
    "Asserts that `grad` and finite differences say the same of the number `y`."
    found = grad(y, leaves)
    legal_graph(*found)
    for g, d, n in zip(evaluate(found), differences(y, leaves), leaves):
        assert g.shape == n.shape and g.dtype == np.float64
        np.testing.assert_allclose(g, d, rtol, atol * max(1, float(np.abs(d).max(initial=0))))


# --- random graphs ---

UNARY = [lambda x: -x, lambda x: (x * x + 0.5).sqrt(), lambda x: (x * 0.5).clip(-4, 4).exp2(), lambda x: (x * x + 0.7).log2(), lambda x: x.sin(),
         lambda x: x.tanh(), lambda x: x.sigmoid(), lambda x: x.square(), lambda x: 1 / (x * x + 1), lambda x: x - x.detach() * 0,
         lambda x: x.cast("float64"), lambda x: Node(Op.CONTIGUOUS, x.dtype, (x,))]
BINARY = [lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / (y * y + 1), lambda x, y: (x < 10).where(y, x)]
MOVES = [lambda x: x.T, lambda x: x.flip(-1), lambda x: x.pad(((1, 0), (0, 2)), 0.3), lambda x: x[:, :-1] if x.shape[1] > 1 else x,
         lambda x: x.reshape(-1, 1), lambda x: x.reshape(1, -1), lambda x: x[:1].expand(3, x.shape[1]),
         lambda x: x.window(1, 2).sum(-1) if x.shape[1] > 1 else x, lambda x: x.window(1, 2, 1, 2) .reshape(x.shape[0], -1) if x.shape[1] > 2 else x,
         lambda x: Node(Op.CAT, x.dtype, (x, x * 2), 0)]
REDUCTIONS = [lambda x, a: x.sum(a, True), lambda x, a: x.mean(a, True), lambda x, a: x.prod(a, True), lambda x, a: x.softmax(a),
              lambda x, a: x.var(a, True, 0), lambda x, a: x.logsumexp(a, True)]


@st.composite
def graphs(draw):
    "A random number made from two small arrays, and the arrays."
    values = st.integers(-24, 24).map(lambda i: i / 16 + 1 / 64)
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    leaves = [array(draw(st.lists(values, min_size=math.prod(shape), max_size=math.prod(shape))), shape) for _ in range(2)]
    made = list(leaves)
    for _ in range(draw(st.integers(1, 8))):
        x = draw(st.sampled_from(made))
        kind = draw(st.sampled_from("ubmr"))
        if kind == "u": y = draw(st.sampled_from(UNARY))(x)
        elif kind == "m": y = draw(st.sampled_from(MOVES))(x)
        elif kind == "r": y = draw(st.sampled_from(REDUCTIONS))(x, draw(st.sampled_from((0, 1))))
        else:
            other = draw(st.sampled_from([n for n in made if all(a == b or 1 in (a, b) for a, b in zip(n.shape, x.shape))]))
            y = draw(st.sampled_from(BINARY))(x, other)
        if y.numel <= 24: made.append(y)
    return loss(made[-1]), leaves


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs(graph): agree(*graph, rtol=1e-4, atol=1e-5)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs_twice(graph):
    "The gradient of the gradient, in a direction."
    y, leaves = graph
    first = sum((loss(g) for g in grad(y, leaves)[1:]), loss(grad(y, leaves)[0]))
    agree(first, leaves, rtol=1e-3, atol=1e-4)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_graphs_on_every_device(device, graph):
    "Values and gradients are those of the reference."
    y, leaves = graph
    roots = [y, *grad(y, leaves)]
    for ours, expected in zip(run(*roots), evaluate(roots)): np.testing.assert_allclose(ours, expected, 1e-9, 1e-9)


# --- row by row ---

P = (7 * np.arange(6) % 13 / 16 + 0.5).reshape(2, 3)
Q = (5 * np.arange(6) % 17 / 16 + 0.75).reshape(2, 3)


def node(op, arg, *src): return Node(op, src[0].dtype, src, arg)
def places(values, shape): return array(values, shape, dtypes.int32)


ROWS = {
    Op.NEG: [lambda a: -a], Op.SQRT: [lambda a: a.sqrt()], Op.EXP2: [lambda a: a.exp2()], Op.LOG2: [lambda a: a.log2()],
    Op.SIN: [lambda a: a.sin()], Op.CAST: [lambda a: a.cast("float32").cast("float64")],
    Op.ADD: [lambda a, b: a + b, lambda a, b: a + b[:1]], Op.MUL: [lambda a, b: a * b, lambda a: a * a],
    Op.DIV: [lambda a, b: a / b, lambda a: 1 / a], Op.MAX: [lambda a, b: a.maximum(b), lambda a: a.maximum(0.8), lambda a: a.relu()],
    Op.WHERE: [lambda a, b: (a < b).where(a * 2, b), lambda a: (a < 0.8).where(a, 0)],
    Op.RESHAPE: [lambda a: a.reshape(3, 2)], Op.PERMUTE: [lambda a: a.T, lambda a: a.reshape(1, 2, 3).permute(2, 0, 1)],
    Op.EXPAND: [lambda a: a[:1].expand(4, 3), lambda a: a.reshape(2, 1, 3).expand(5, 2, 4, 3)],
    Op.PAD: [lambda a: a.pad(((1, 0), (2, 1)), 5.0)], Op.SHRINK: [lambda a: a[:, 1:]], Op.FLIP: [lambda a: a.flip(0, 1)],
    Op.WINDOW: [lambda a: a.window(1, 2), lambda a: a.window(1, 2, 1, 2), lambda a: a.reshape(6).window(0, 2, 3)],
    Op.FOLD: [lambda a: node(Op.FOLD, (0, 5, 2, 1), a), lambda a: node(Op.FOLD, (0, 9, 3, 2), a), lambda a: node(Op.FOLD, (0, 4, 1, 1), a)],
    Op.REDUCE: [lambda a: a.sum(0), lambda a: a.sum(), lambda a: a.prod(1), lambda a: a.prod(), lambda a: a.max(1), lambda a: a.min(0)],
    Op.GATHER: [lambda a: node(Op.GATHER, 1, a, places([2, 0, 0, 2, 9, -1], (2, 3))), lambda a: node(Op.GATHER, 1, a, places([2, 2], (1, 2)))],
    Op.SCATTER: [lambda a, b: node(Op.SCATTER, (Op.ADD, 1), a, places([2, 0, 0, 2, 9, -1], (2, 3)), b),
                 lambda a, b: node(Op.SCATTER, (Op.ADD, 1), a, places([2, 2], (1, 2)), b[:1, :2])],
    Op.CAT: [lambda a, b: node(Op.CAT, 1, a, b), lambda a: node(Op.CAT, 0, a, a)], Op.CONTIGUOUS: [lambda a: node(Op.CONTIGUOUS, None, a)],
}
FLAT = {Op.TRUNC, Op.IDIV, Op.MOD, Op.LT, Op.LE, Op.EQ, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.BITCAST, Op.DETACH,
        Op.CONST, Op.BUFFER, Op.VAR, Op.IOTA}


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_row(op):
    for f in ROWS[op]:
        leaves = [array(P), array(Q)][:f.__code__.co_argcount]
        y = f(*leaves)
        assert op in {n.op for n in toposort(y)}
        agree(loss(y), leaves)
        agree(loss(y * y), leaves, rtol=1e-5)                  # and inside something that is not linear


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_row_on_every_device(device, op):
    "The numbers of the reference, from the same graph."
    for f in ROWS[op]:
        leaves = [array(P), array(Q)][:f.__code__.co_argcount]
        found = grad(loss(f(*leaves)), leaves)
        for ours, expected in zip(run(*found), evaluate(found)): np.testing.assert_allclose(ours, expected, 1e-9, 1e-9)


def test_every_operation_has_a_row_or_a_reason():
    assert ROWS.keys() == vjp.keys()
    assert not vjp.keys() & FLAT and vjp.keys() | FLAT == meaning.keys()


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "tanh", "sigmoid", "silu", "gelu", "exp", "log", "cos", "tan", "rsqrt", "square", "leaky_relu"])
def test_functions(name):
    a = array(P)
    agree(loss(getattr(a, name)()), [a])


def test_contractions_and_statistics():
    a, b = array(P), array(Q)
    for y in (a @ b.T, a.T @ b, a.var(1), a.std(0), a.mean((0, 1)), a.logsumexp(1), a**3, a**-2, a**0.5, a.max(1) - a.min(1)):
        agree(loss(y), [n for n in (a, b) if n in toposort(y)])


# --- what users lean on ---

def test_equal_leaves_are_not_one_leaf(device):
    w1, w2 = array([3.0]), array([3.0])
    assert slopes(w1 + w2, w1, w2) == [[1], [1]] and slopes(w1 + w1, w1) == [2]
    assert slopes(w1 * w2 + w1, w1, w2) == [[4], [3]]


def test_a_relu_needs_what_it_gave_and_not_what_it_took():
    x, y = array([-1.0, 0.0, 2.0]), array([3.0, 4.0, 5.0])
    taken = x * y
    given = taken.relu()
    slope, = grad((given * y).sum(), [x])
    compared = {s for n in toposort(slope) if n.op is Op.LT for s in n.src}
    assert given in compared and taken not in compared


def test_ties_share(device):
    x = array([1, 3, 3])
    assert slopes(x.max(), x) == [0, 0.5, 0.5]
    assert slopes(x.min(), x) == [1, 0, 0]
    a, b = array([1.0, 2.0]), array([1.0, 1.0])
    assert slopes(a.maximum(b).sum(), a, b) == [[0.5, 1], [0.5, 0]]
    everything = array([[2.0] * 4] * 2)
    assert slopes(everything.max(), everything) == [[1 / 8] * 4] * 2
    kink = array([-1.0, 0.0, 1.0])
    assert slopes(kink.relu().sum(), kink) == [0, 0, 1]


def test_products_with_zeros(device):
    for values, expected in [([2, 0, 3], [0, 6, 0]), ([0, 0, 3], [0, 0, 0]), ([2, 5, 3], [15, 6, 10]), ([0], [1]), ([], [])]:
        x = array(values)
        assert slopes(x.prod(), x) == expected
    rows = array([[1, 2, 0], [4, 5, 6]])
    assert slopes(rows.prod(1).sum(), rows) == [[0, 0, 2], [30, 24, 20]]
    assert slopes(rows.prod(), rows) == [[0, 0, 240], [0, 0, 0]]


def test_higher_order(device):
    x = array([2.0])
    y, expected = x**4, [4 * 2**3, 12 * 2**2, 24 * 2, 24, 0]
    for k in expected:
        y = grad(y, [x])[0]
        assert run(y) == [[k]]
    z = array([2.0, 0.0, 3.0])
    first = grad(z.prod(), [z])[0]                                          # [yz, xz, xy]
    assert slopes((first * array([1.0, 10.0, 100.0])).sum(), z) == [30 + 0, 3 + 200, 20 + 0]


def test_ends_of_the_way():
    x = array([3.5])
    assert slopes(x * x.detach(), x) == [3.5]
    for flat in (x.floor(), x.trunc(), x.cast("int32").cast("float64"), x.detach(), (x < 3).where(1.0, 2.0), x.sign()): assert slopes(flat.sum(), x) == [0]
    assert slopes(x % 2.0, x) == [1]                                        # x - 2 * floor(x / 2)
    assert slopes(array([1.0]) * 2, x) == [0]                               # x is not in that graph
    with pytest.raises(TypeError, match="int32"): grad(x.cast("int32").sum(), [x])


def test_a_cotangent_of_ones_own():
    x, g = array([1.0, 2.0, 3.0]), array([1.0, 10.0, 100.0])
    assert run(*grad(x * x, [x], g)) == [[2, 40, 600]]
    assert run(*grad(x, [x], g)) == [[1, 10, 100]]
    inner = x * 2
    assert run(*grad((inner * inner).sum(), [inner, x])) == [[4, 8, 12], [8, 16, 24]]       # also of a value on the way


def test_long_chains_wide_sums_and_ladders():
    x = array([1.0])
    deep = x
    for _ in range(10_000): deep = deep * 1.0001
    assert slopes(deep, x)[0] == pytest.approx(1.0001**10_000)
    wide = x
    for i in range(3_000): wide = wide + x * i
    assert slopes(wide, x) == [1 + sum(range(3_000))]
    ladder = x
    for _ in range(60): ladder = ladder.maximum(ladder * 1.0) + ladder * 0                  # 2**60 paths
    assert slopes(ladder, x) == [1]


def test_many_parts():
    parts = [array([float(i)]) for i in range(2_000)]
    y = (Node(Op.CAT, dtypes.float64, tuple(parts), 0) * iota(2_000).cast("float64")).sum()
    found = grad(y, parts)
    assert evaluate(found[1990:]) == [[i] for i in range(1990, 2000)]


def test_half_floats_are_summed_in_float32(device):
    "A bias that 4,096 rows share: its gradient does not stop at 2,048, where float16 can no longer count by ones."
    for d in (dtypes.float16, dtypes.bfloat16):
        bias = array([0.0, 0.0], (1, 2), d)
        y = (bias.expand(4096, 2) + 1).sum()
        assert slopes(y, bias) == [[4096, 4096]]
    tied = array([1.0] * 4096, (4096,), dtypes.float16)
    assert set(slopes(tied.max(), tied)) == {1 / 4096}


def test_infinities_and_nans_stay_where_they_are(device):
    x = array([1.0, 2.0])
    masked = (x < 1.5).where(x, -INF)
    assert slopes(masked.softmax(0)[0], x) == [0, 0]
    assert slopes((x < 1.5).where(x, NAN).sum(), x) == [1, 0]
    zero = array([0.0])
    assert slopes(zero.sqrt(), zero) == [INF]
    far = array([-800.0, 0.0, 800.0])
    assert all(math.isfinite(v) for v in slopes(far.tanh().sum(), far) + slopes(far.sigmoid().sum(), far))


def test_gradients_do_not_touch_what_is_not_asked_for():
    "No work is made for inputs that have no knobs."
    x, w = array(P), array(Q)
    y = (x @ w.T).relu().sum()
    both, one = grad(y, [x, w]), grad(y, [w])
    assert len(toposort(*one)) < len(toposort(*both))


