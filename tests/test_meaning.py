"What every operation means, on every device, against plain Python."
import itertools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest

from tinylit.backend import numpy as reference
from tinylit.backend.device import Buffer
from tinylit.backend.device import Device
from tinylit.backend.device import HostDevice
from tinylit.backend.device import Unavailable
from tinylit.backend.device import bfloat16_bits
from tinylit.backend.device import buffer_of
from tinylit.backend.device import device as find_device
from tinylit.backend.device import leaf
from tinylit.backend.device import pack
from tinylit.backend.device import target
from tinylit.backend.device import unpack
from tinylit.backend.device import Var
from tinylit.graph.dtype import TABLE
from tinylit.graph.dtype import bounds_of
from tinylit.graph.dtype import dtypes
from tinylit.graph.node import Node
from tinylit.graph.node import const
from tinylit.graph.node import iota
from tinylit.graph.op import Op

INTS = [d for d in TABLE.values() if d.is_int]
FLOATS = [d for d in TABLE.values() if d.is_float]
INF, NAN = math.inf, math.nan


def array(values, dtype, shape=None) -> Node:
    "A leaf on the default device that holds `values`."
    values = list(values)
    return leaf(Buffer(len(values), dtype, find_device(), pack(values, dtype)), shape or (len(values),))


def run(*nodes: Node) -> list:
    "The values of each node, flat, as Python numbers."
    found = [unpack(b.data(), n.dtype) for b, n in zip(find_device().run(list(nodes)), nodes)]
    return found if len(nodes) > 1 else found[0]


def rounded(x: float, dtype) -> float:
    "`x` as `dtype` keeps it."
    return unpack(pack([x], dtype), dtype)[0]


def wrapped(v: int, dtype) -> int:
    "The low bits of `v`."
    v &= (1 << dtype.bits) - 1
    return v - (1 << dtype.bits) if dtype.kind == "i" and v >> dtype.bits - 1 else v


def same(a, b) -> bool:
    "Equal, NaN included; the sign of zero does not count."
    return a == b or (a != a and b != b)


def edges(d) -> list:
    "Integers of `d` where something may go wrong."
    lo, hi = bounds_of(d)
    near = [lo, lo + 1, -7, -3, -2, -1, 0, 1, 2, 3, 7, d.bits - 1, d.bits, d.bits + 1, hi // 2, hi - 1, hi]
    return sorted({v for v in near if lo <= v <= hi})


# --- whole numbers ---

def shl(a, b, d): return wrapped(a << b, d) if 0 <= b < d.bits else 0
def shr(a, b, d): return a >> b if 0 <= b < d.bits else -1 if a < 0 else 0


WHOLE = {
    Op.ADD:  lambda a, b, d: wrapped(a + b, d),
    Op.MUL:  lambda a, b, d: wrapped(a * b, d),
    Op.IDIV: lambda a, b, d: wrapped(a // b, d) if b else 0,
    Op.MOD:  lambda a, b, d: a % b if b else 0,
    Op.MAX:  lambda a, b, d: max(a, b),
    Op.LT:   lambda a, b, d: a < b,
    Op.LE:   lambda a, b, d: a <= b,
    Op.EQ:   lambda a, b, d: a == b,
    Op.AND:  lambda a, b, d: a & b,
    Op.OR:   lambda a, b, d: a | b,
    Op.XOR:  lambda a, b, d: a ^ b,
    Op.SHL:  shl,
    Op.SHR:  shr,
}


def check_pairs(op, d, values):
    "Every pair of `values`."
    left, right = zip(*itertools.product(values, values))
    got = run(array(left, d).alu(op, array(left, d), array(right, d)))
    wrong = [(a, b, g) for a, b, g in zip(left, right, got) if g != WHOLE[op](a, b, d)]
    assert not wrong, f"{op!r} {d}: {wrong[:3]}"


@pytest.mark.parametrize("d", INTS, ids=str)
@pytest.mark.parametrize("op", WHOLE, ids=lambda op: op.name)
def test_whole_numbers_at_the_edges(device, op, d): check_pairs(op, d, edges(d))


@pytest.mark.parametrize("d", [dtypes.int8, dtypes.uint8], ids=str)
@pytest.mark.parametrize("op", [Op.IDIV, Op.MOD], ids=lambda op: op.name)
def test_division_of_every_pair(device, op, d):
    lo, hi = bounds_of(d)
    check_pairs(op, d, range(lo, hi + 1))


@pytest.mark.parametrize("d", INTS, ids=str)
def test_division_by_a_number_in_the_graph(device, d):
    "Constants take other ways through a compiler than arrays do."
    lo, hi = bounds_of(d)
    for b in [b for b in (-3, -1, 0, 1, 2, 8, lo, hi) if lo <= b <= hi]:
        x = array(edges(d), d)
        quotients, rests = run(x // const(b, d), x % const(b, d))
        assert quotients == [WHOLE[Op.IDIV](a, b, d) for a in edges(d)], f"// {b}"
        assert rests == [WHOLE[Op.MOD](a, b, d) for a in edges(d)], f"% {b}"


@pytest.mark.parametrize("d", INTS, ids=str)
def test_negative_and_truth(device, d):
    x = array(edges(d), d)
    negative, inverted, truth = run(-x, ~x, x.cast("bool"))
    assert negative == [wrapped(-a, d) for a in edges(d)]
    assert inverted == [wrapped(~a, d) for a in edges(d)]
    assert truth == [a != 0 for a in edges(d)]


def test_truth_values_stop_at_one(device):
    a, b = array([0, 0, 1, 1], dtypes.bool), array([0, 1, 0, 1], dtypes.bool)
    found = run(a + b, a * b, a.maximum(b), a & b, a | b, a ^ b, ~a, a < b, a.eq(b))
    expected = ["0111", "0001", "0111", "0001", "0111", "0110", "1100", "0100", "1001"]
    assert ["".join(str(int(v)) for v in row) for row in found] == expected


# --- floats ---

SPECIAL = [0.0, -0.0, 1.0, -1.5, 0.1, 3.7, -2.25, 100.0, 1e-3, INF, -INF, NAN]


def divided(a, b):
    if b: return a / b
    return NAN if a == 0 or a != a else math.copysign(INF, a) * math.copysign(1, b)


def larger(a, b): return NAN if a != a or b != b else max(a, b)


FLOATING = {
    Op.ADD: lambda a, b: a + b,
    Op.MUL: lambda a, b: a * b,
    Op.DIV: divided,
    Op.MAX: larger,
    Op.LT:  lambda a, b: a < b,
    Op.LE:  lambda a, b: a <= b,
    Op.EQ:  lambda a, b: a == b,
}


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("op", FLOATING, ids=lambda op: op.name)
def test_floats(device, op, d):
    "One rounding of the exact result; in float64 the exact result is Python's."
    values = [rounded(v, d) for v in SPECIAL]
    left, right = zip(*itertools.product(values, values))
    y = array(left, d).alu(op, array(left, d), array(right, d))
    for a, b, got in zip(left, right, run(y)):
        expected = FLOATING[op](a, b)
        expected = expected if y.dtype.is_bool else rounded(expected, d)
        assert same(got, expected), f"{a} {op!r} {b} = {got}, not {expected}"


def root(x): return math.sqrt(x) if x >= 0 else NAN
def power(x): return 2.0**x if x < 1024 else INF
def logarithm(x): return math.log2(x) if x > 0 else -INF if x == 0 else NAN
def sine(x): return math.sin(x) if math.isfinite(x) else NAN
def truncated(x): return float(math.trunc(x)) if math.isfinite(x) else x


UNARY = {Op.NEG: (lambda x: -x, 0), Op.SQRT: (root, 1), Op.TRUNC: (truncated, 0),
         Op.EXP2: (power, 4), Op.LOG2: (logarithm, 4), Op.SIN: (sine, 4)}     # oracle, units in the last place allowed


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.name)
def test_functions_of_one_float(device, op, d):
    oracle, ulps = UNARY[op]
    digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[d.name]
    values = [rounded(v, d) for v in SPECIAL + [i / 8 for i in range(-20, 20)]]
    x = array(values, d)
    for a, got in zip(values, run(x.alu(op, x))):
        expected = rounded(oracle(a), d) if a == a else NAN
        near = math.isfinite(expected) and abs(got - expected) <= ulps * 2.0**-digits * max(abs(expected), 2.0**-12)
        assert same(got, expected) or near, f"{op!r} {a} = {got}, not {expected}"


@pytest.mark.parametrize("d", FLOATS, ids=str)
@pytest.mark.parametrize("n", [1, 3, 64])
def test_of_two_zeros_the_larger_is_the_second(device, d, n):
    "On every device and at every width; so relu leaves no -0.0, and 1 / abs(0.0) is not -inf."
    plus, minus = array([0.0] * n, d), array([-0.0] * n, d)
    found = run(plus.maximum(minus), minus.maximum(plus), plus.maximum(-0.0), minus.relu(), plus.minimum(minus), plus.abs())
    signs = [{math.copysign(1, v) for v in row} for row in found]
    assert signs == [{-1}, {1}, {-1}, {1}, {-1}, {1}]


def test_whole_division_of_floats_rounds_down(device):
    a, b = [7.5, -7.5, 7.5, -7.5, 1.0], [2.0, 2.0, -2.0, -2.0, 0.0]
    x, y = array(a, dtypes.float32), array(b, dtypes.float32)
    quotients, rests = run(x // y, x % y)
    assert quotients == [3, -4, -4, 3, INF]
    assert rests[:4] == [p % q for p, q in zip(a[:4], b)] and math.isnan(rests[4])


def test_nan_survives(device):
    x = array([1.0, NAN, 3.0], dtypes.float32)
    largest, smallest, relu, least = run(x.max(), x.min(), x.relu(), x.minimum(2.0))
    assert math.isnan(largest[0]) and math.isnan(smallest[0])
    assert same(relu[1], NAN) and same(least[1], NAN) and relu[0] == 1 and least[2] == 2
    inf = array([INF], dtypes.float32)
    assert all(math.isnan(v) for [v] in run(inf - inf, inf * 0, inf + -inf, inf / inf))
    assert run((array([-INF] * 3, dtypes.float32)).logsumexp()) == [-INF]


# --- from one dtype to another ---

def cast_value(v, source, target):
    "What one number becomes."
    if target.is_bool: return v != 0
    if target.is_float: return rounded(rounded(float(v), dtypes.float32) if target is dtypes.bfloat16 else float(v), target)
    if not source.is_float: return wrapped(int(v), target)
    lo, hi = bounds_of(target)
    return 0 if v != v else lo if v <= lo else hi if v >= hi else int(v)


BETWEEN = [0.0, 0.5, -0.5, 1.0, -1.0, 2.9, -2.9, 127.5, 128.0, -129.0, 255.9, 300.0, 65504.0, 65519.0, 65520.0, 3e9, -3e9,
           2.0**31, 2.0**63, 1.8e19, 2.0**64, 1e38, INF, -INF, NAN]


@pytest.mark.parametrize("target", TABLE.values(), ids=str)
@pytest.mark.parametrize("source", TABLE.values(), ids=str)
def test_casts(device, source, target):
    values = [rounded(v, source) for v in BETWEEN] if source.is_float else [False, True] if source.is_bool else edges(source)
    got = run(array(values, source).cast(target)) if source is not target else values
    wrong = [(v, g) for v, g in zip(values, got) if not same(g, cast_value(v, source, target))]
    assert not wrong, wrong[:3]


@pytest.mark.parametrize("source", [d for d in TABLE.values() if not d.is_bool], ids=str)
def test_bitcasts(device, source):
    values = [rounded(v, source) for v in (0.0, 1.0, -2.5, 100.0)] if source.is_float else edges(source)
    for target in (d for d in TABLE.values() if d.bits == source.bits and d is not source):
        if target.is_float and not source.is_float: continue              # some integers are the bits of a NaN
        assert run(array(values, source).bitcast(target)) == unpack(pack(values, source), target)
        assert run(array(values, source).bitcast(target).bitcast(source)) == values


# --- movement, reduction, memory: element by element ---

def table(x_shape):
    "A distinct number at every index."
    return {idx: i + 1 for i, idx in enumerate(itertools.product(*map(range, x_shape)))}


def moved(shape, element):
    "The flat values of an array of `shape` whose element at an index is `element(index)`."
    return [element(idx) for idx in itertools.product(*map(range, shape))]


def check(y: Node, shape, element):
    assert y.shape == shape and run(y) == moved(shape, element)


def at_axis(idx, axis, value): return idx[:axis] + (value,) + idx[axis + 1:]


X = (3, 4, 5)


def source(shape=X, dtype=dtypes.int32): return array(table(shape).values(), dtype, shape), table(shape)


def test_reshape(device):
    x, t = source()
    check(x.reshape(5, 12), (5, 12), lambda i: 1 + 12 * i[0] + i[1])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_permute(device, order):
    x, t = source()
    shape = tuple(X[a] for a in order)
    check(x.permute(order), shape, lambda i: t[tuple(i[order.index(a)] for a in range(3))])


def test_expand(device):
    x, t = source((3, 1, 2))
    check(x.expand(4, 3, 5, 2), (4, 3, 5, 2), lambda i: t[i[1], 0, i[3]])


@pytest.mark.parametrize("pads", [((1, 2), (0, 0), (0, 3)), ((0, 0), (2, 1), (1, 1))])
def test_pad(device, pads):
    x, t = source()
    shape = tuple(b + n + a for n, (b, a) in zip(X, pads))
    check(x.pad(pads, -7), shape, lambda i: t.get(tuple(j - b for j, (b, _) in zip(i, pads)), -7))


def test_shrink_and_flip(device):
    x, t = source()
    check(x.shrink(((1, 3), None, (2, 4))), (2, 4, 2), lambda i: t[i[0] + 1, i[1], i[2] + 2])
    check(x.flip(0, 2), X, lambda i: t[2 - i[0], i[1], 4 - i[2]])
    assert run(x.shrink(((1, 1), None, None))) == []


WINDOWS = [(0, 2, 1, 1), (1, 2, 2, 1), (2, 3, 1, 2), (2, 2, 3, 1), (1, 1, 2, 1), (2, 5, 1, 1)]


@pytest.mark.parametrize("arg", WINDOWS)
def test_window(device, arg):
    axis, size, stride, dilation = arg
    x, t = source()
    y = x.window(*arg)
    count = len(range(0, X[axis] - (size - 1) * dilation, stride))
    check(y, at_axis(X, axis, count) + (size,), lambda i: t[at_axis(i[:-1], axis, i[axis] * stride + i[-1] * dilation)])


@pytest.mark.parametrize("arg", WINDOWS)
def test_fold_is_window_turned_round(device, arg):
    axis, size, stride, dilation = arg
    shape = source()[0].window(*arg).shape
    y, t = source(shape)
    expected = dict.fromkeys(table(X), 0)
    for i, v in t.items(): expected[at_axis(i[:-1], axis, i[axis] * stride + i[-1] * dilation)] += v
    check(Node(Op.FOLD, y.dtype, (y,), (axis, X[axis], stride, dilation)), X, expected.__getitem__)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX], ids=lambda op: op.name)
def test_reduce(device, op, axes):
    x, t = source(dtype=dtypes.int64)
    combine = {Op.ADD: sum, Op.MUL: math.prod, Op.MAX: max}[op]
    def element(i): return wrapped(combine([v for k, v in t.items() if all(k[a] == i[a] for a in range(3) if a not in axes)]), dtypes.int64)
    check(x.reduce(op, axes, keepdim=True), tuple(1 if a in axes else n for a, n in enumerate(X)), element)


def test_reducing_nothing(device):
    x = array([], dtypes.float32, (0, 2))
    assert run(x.sum(0), x.prod(0)) == [[0, 0], [1, 1]]
    assert run(x.sum(1)) == []


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_clamps(device, axis):
    x, t = source()
    shape = at_axis((2, 3, 4), axis, 6)
    where = {k: v % 13 - 4 for k, v in table(shape).items()}
    idx = array(where.values(), dtypes.int32, shape)
    held = lambda v: min(max(v, 0), X[axis] - 1)
    check(Node(Op.GATHER, x.dtype, (x, idx), axis), shape, lambda i: t[at_axis(i, axis, held(where[i]))])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX], ids=lambda op: op.name)
def test_scatter_where_positions_repeat(device, op, axis):
    dst, expected = source()
    shape = at_axis((2, 3, 4), axis, 6)
    where = {k: v % 7 - 1 for k, v in table(shape).items()}
    src, values = source(shape)
    combine = {Op.ADD: lambda a, b: a + b, Op.MUL: lambda a, b: a * b, Op.MAX: max}[op]
    for i, v in values.items():
        to = at_axis(i, axis, min(max(where[i], 0), X[axis] - 1))
        expected[to] = wrapped(combine(expected[to], v), dtypes.int32)
    idx = array(where.values(), dtypes.int32, shape)
    check(Node(Op.SCATTER, dst.dtype, (dst, idx, src), (op, axis)), X, expected.__getitem__)
    check(dst, X, table(X).__getitem__)                                   # the destination is not touched


def test_cat_where_and_the_rest(device):
    x, t = source((2, 3))
    y, u = source((2, 2))
    check(Node(Op.CAT, x.dtype, (x, y), 1), (2, 5), lambda i: t[i] if i[1] < 3 else u[i[0], i[1] - 3])
    check((x > 3).where(x, -x), (2, 3), lambda i: t[i] if t[i] > 3 else -t[i])
    check(Node(Op.CONTIGUOUS, x.dtype, (x.T,)), (3, 2), lambda i: t[i[1], i[0]])
    check(x.detach(), (2, 3), t.__getitem__)
    check(iota(5), (5,), lambda i: i[0])
    place = Var("place", 0, 10, 4)
    check(iota(3) + place.node(), (3,), lambda i: i[0] + 4)
    place.value = 9
    check(iota(3) + place.node(), (3,), lambda i: i[0] + 9)


def test_nothing_was_forgotten():
    here = WHOLE.keys() | FLOATING.keys() | UNARY.keys() | {Op.CAST, Op.BITCAST}
    here |= {Op.RESHAPE, Op.PERMUTE, Op.EXPAND, Op.PAD, Op.SHRINK, Op.FLIP, Op.WINDOW, Op.FOLD, Op.REDUCE}
    here |= {Op.GATHER, Op.SCATTER, Op.CAT, Op.WHERE, Op.CONTIGUOUS, Op.DETACH, Op.IOTA, Op.VAR, Op.CONST, Op.BUFFER}
    assert here == reference.meaning.keys()


# --- half floats ---

def nearest_bfloat16(x: float) -> int:
    "By exact distances: the nearest pattern, an even one on a tie."
    def number(bits): return Fraction(*struct.unpack("f", struct.pack("I", bits << 16))[0].as_integer_ratio())
    below = struct.unpack("I", struct.pack("f", x))[0] >> 16
    if (below & 0x7FFF) == 0x7F7F: return below + (abs(Fraction(x)) >= 2**128 - 2**119)      # the last one before infinity
    down, up = abs(Fraction(x) - number(below)), abs(Fraction(x) - number(below + 1))
    return below if down < up or (down == up and below % 2 == 0) else below + 1


def test_bfloat16_goes_to_the_nearest_even():
    lower = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)
    patterns = [upper << 16 | low for upper in range(0, 1 << 16, 37) for low in lower if upper & 0x7F80 != 0x7F80]
    patterns += [upper << 16 | low for upper in (0x7F7F, 0xFF7F) for low in lower]
    values = np.array(patterns, np.uint32).view(np.float32)
    expected = [nearest_bfloat16(float(v)) for v in values]
    assert [bfloat16_bits(float(v)) for v in values] == expected
    assert reference.stored(values, dtypes.bfloat16).tolist() == expected


def test_every_bfloat16_survives(device):
    patterns = [p for p in range(1 << 16) if p & 0x7FFF <= 0x7F80]                          # all but the NaNs
    values = np.array(patterns, np.uint16)
    x = leaf(Buffer(len(patterns), dtypes.bfloat16, find_device(), values.tobytes()), (len(patterns),))
    wide = find_device().run([x.cast("float32")])[0]
    assert bytes(wide.data()) == (values.astype(np.uint32) << 16).tobytes()
    back = find_device().run([x.cast("float32").cast("bfloat16")])[0]
    normal = (values & 0x7FFF >= 0x80) | (values & 0x7FFF == 0)                             # a device may flush the tiniest
    assert (np.frombuffer(back.data(), np.uint16) == values)[normal].all()


def test_half_floats_overflow_and_their_mean_does_not(device):
    assert run(array([65536.0, -1e30, 65519.0], dtypes.float32).cast("float16")) == [INF, -INF, 65504]
    for d in (dtypes.float16, dtypes.bfloat16): assert run(array([60000.0] * 8, d).mean()) == [rounded(60000.0, d)]


# --- buffers, devices ---

def test_pack_and_unpack():
    for d in INTS:
        lo, hi = bounds_of(d)
        assert unpack(pack([lo, 0, hi], d), d) == [lo, 0, hi]
        for v in (lo - 1, hi + 1, INF, NAN):
            with pytest.raises(ValueError, match=str(d)): pack([v], d)
    for d in FLOATS: assert all(same(a, b) for a, b in zip(unpack(pack([1.5, INF, -INF, NAN], d), d), [1.5, INF, -INF, NAN]))
    assert unpack(pack([0.5, 0, -2], dtypes.bool), dtypes.bool) == [True, False, True]
    assert unpack(pack([3.5e38, -1e300], dtypes.float32), dtypes.float32) == [INF, -INF]
    for d, end in {dtypes.float16: 65520, dtypes.bfloat16: 2**128 - 2**119, dtypes.float32: 2**128 - 2**103}.items():      # whole numbers, too
        assert unpack(pack([end, -end], d), d) == [INF, -INF]
        assert math.isfinite(unpack(pack([end * (1 - 2.0**-24)], d), d)[0])
    for d in FLOATS:
        for v in ("one", None, 10**400):
            with pytest.raises(ValueError, match=str(d)): pack([v], d)


def test_blocks_are_reused_and_never_shared():
    d = HostDevice()
    held = [Buffer(n, dtypes.float32, d) for n in (10, 10, 1 << 20, 1 << 21)]
    blocks = [b.handle() for b in held]
    assert len(set(map(id, blocks))) == 4 and all(len(b) >= h.nbytes + 64 for b, h in zip(blocks, held))
    del held
    again = [Buffer(n, dtypes.float32, d).handle() for n in (10, 1 << 20, 1 << 21)]
    assert all(any(a is b for b in blocks) for a in again)
    many = [Buffer(10, dtypes.float32, d) for _ in range(20)]
    assert len({id(b.handle()) for b in many}) == 20
    del many
    assert len(d.pool[40]) <= 8


def test_buffer_of_sees_through_reshapes():
    d = find_device("numpy")
    b = Buffer(6, dtypes.float32, d, pack(range(6), dtypes.float32))
    x = leaf(b, (2, 3))
    assert buffer_of(x.reshape(3, 2).reshape(6), d) is b and buffer_of(x.T, d) is None
    y = x + 1
    assert buffer_of(y, d) is None
    d.realized[y] = held = Buffer(6, dtypes.float32, d, pack(range(1, 7), dtypes.float32))
    assert buffer_of(y.reshape(6), d) is held
    assert unpack(d.run([y * 2])[0].data(), dtypes.float32) == [2, 4, 6, 8, 10, 12]


def test_the_arrays_of_a_graph_cannot_write_to_its_buffers():
    x = leaf(Buffer(3, dtypes.float32, find_device("numpy"), pack([1, 2, 3], dtypes.float32)), (3,))
    with pytest.raises(ValueError): reference.evaluate([x])[0][0] = 5
    with pytest.raises(ValueError): reference.evaluate([x.flip(0)])[0][0] = 5


@pytest.mark.parametrize("name", ["abacus", "device", "../numpy", "", "numpy.x"])
def test_an_unknown_device_is_unavailable(name):
    with pytest.raises(Unavailable): find_device(name)


def test_a_device_says_what_it_does_not_offer():
    for d, verb in [(Device(), "alloc"), (Device(), "copyout"), (HostDevice(), "run"), (find_device("numpy"), "kernels"), (find_device("numpy"), "source")]:
        with pytest.raises(NotImplementedError, match=f"{d.name}.*{verb}"): getattr(d, verb)([])
    assert not hasattr(Device(), "fly")


def test_a_target_names_a_limit_and_a_number_from_one(monkeypatch):
    limits = ("lanes", "threads")
    for text, fixed in {"": {}, "c": {}, "c:": {}, "gpu:cores=9": {}, "c:threads=2": {"threads": 2}, "c:lanes=8,threads=2": {"lanes": 8, "threads": 2}}.items():
        monkeypatch.setenv("TINYLIT_TARGET", text)
        assert target("c", limits) == fixed
    for text in ("c:lanes=0", "c:lanes=-8", "c:lanes", "c:lanes=x", "c:lane=8", "c:lanes=8=9", "c:=8", "c:lanes=8 threads=2"):
        monkeypatch.setenv("TINYLIT_TARGET", text)
        with pytest.raises(ValueError, match=f"{text}.*lanes, threads"): target("c", limits)


def test_a_number_that_was_computed_still_fits_any_shape(device):
    "Reading a constant remembers its value; later graphs with the same constant are of other shapes."
    half, d = const(0.5, dtypes.float32), find_device()
    d.realized[half] = d.run([half])[0]
    x = array([1.0, 2.0, 3.0], dtypes.float32)
    assert run(half * x) == run(x * half) == [0.5, 1, 1.5]
    assert run((x * half).sum() * half) == [1.5]
    del d.realized[half]
