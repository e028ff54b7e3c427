"Tensors against numpy, and the promises that a user leans on."
import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tinylit.graph.dtype import TABLE
from tinylit.graph.dtype import dtypes
from tinylit.graph.node import toposort
from tinylit.tensor import Tensor
from tinylit.tensor import leaves
from tinylit.tensor import method
from tinylit.tensor import methods
from tinylit.tensor import realize

FLOATS = [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64]
quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def grid(*shape): return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def noise(*shape, seed=0): return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def same(x, expected, rtol=1e-5, atol=1e-6):
    "Asserts shape and values; NaN equals NaN."
    expected = np.asarray(expected)
    assert x.shape == expected.shape
    np.testing.assert_allclose(x.numpy().astype(np.float64), expected.astype(np.float64), rtol, atol)


# --- making ---

def test_a_number_lists_and_arrays(device):
    assert Tensor(3.5).item() == 3.5 and Tensor(3.5).shape == ()
    assert Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert Tensor(range(3)).tolist() == [0, 1, 2]
    assert Tensor([True, False]).dtype is dtypes.bool
    assert Tensor([1, 2.5]).dtype is dtypes.float32 and Tensor([True, 2]).dtype is dtypes.int32
    assert Tensor([np.float32(1), np.float32(2)]).tolist() == [1, 2]
    assert Tensor([Tensor(1.0), Tensor(2.0)]).tolist() == [1, 2]
    for d in ("float64", "int8", "uint16", "bool"): assert Tensor(np.ones(3, d)).dtype.name == d
    assert Tensor(np.ones(3, ">f4")).tolist() == [1, 1, 1]
    same(Tensor(grid(2, 3).T), grid(2, 3).T)


def test_a_copy_is_a_copy(device):
    a = grid(3)
    t = Tensor(a)
    a[0] = 9
    assert t.tolist() == [0, 1, 2]
    t.numpy()[0] = 9
    assert t.tolist() == [0, 1, 2]


def test_factories(device):
    assert Tensor.zeros(2, 3).tolist() == [[0] * 3] * 2 and Tensor.ones((2,)).tolist() == [1, 1]
    assert Tensor.full((2,), 7).dtype is dtypes.int32 and Tensor.full(2, 0.5).tolist() == [0.5, 0.5]
    assert Tensor.eye(2).tolist() == [[1, 0], [0, 1]]
    assert Tensor.arange(4).tolist() == [0, 1, 2, 3] and Tensor.arange(2, 8, 3).tolist() == [2, 5]
    assert Tensor.arange(5, 0, -2).tolist() == [5, 3, 1] and Tensor.arange(3, 3).tolist() == []
    same(Tensor.arange(0, 1, 0.25), np.arange(0, 1, 0.25))
    x = Tensor.ones(2, dtype="int8")
    assert x.zeros_like().dtype is dtypes.int8 and x.ones_like().tolist() == [1, 1]
    assert Tensor.frombuffer(b"\x01\x00\x02\x00", "int16").tolist() == [1, 2]
    assert Tensor.frombuffer(bytes(4), "float32", ()).item() == 0
    with pytest.raises(ValueError, match="5 bytes"): Tensor.frombuffer(bytes(5), "float32")


@pytest.mark.parametrize("dtype", TABLE.values(), ids=str)
def test_every_dtype_goes_in_and_out(device, dtype):
    t = Tensor([0, 1, 1], dtype=dtype)
    assert t.dtype is dtype and t.tolist() == [0, 1, 1]
    assert (t + t).tolist() == ([False, True, True] if dtype.is_bool else [0, 2, 2])
    assert t.cast("float32").tolist() == [0, 1, 1] and Tensor(t, dtype="int32").tolist() == [0, 1, 1]


def test_no_elements(device):
    e = Tensor.zeros(2, 0, 3)
    assert e.tolist() == [[], []] and e.numpy().shape == (2, 0, 3) and Tensor([]).shape == (0,)
    assert e.sum().item() == 0 and e.prod().item() == 1 and e.sum(1).shape == (2, 3)
    assert (e + 1).exp().shape == (2, 0, 3) and e.reshape(0).tolist() == []
    assert (Tensor.zeros(3, 0) @ Tensor.zeros(0, 2)).tolist() == [[0, 0]] * 3
    assert e.cat(Tensor.ones(2, 1, 3), dim=1).shape == (2, 1, 3)
    assert math.isnan(Tensor([]).mean().item())
    assert Tensor([1.0, 2.0])[[]].tolist() == []
    with pytest.raises(ValueError, match="no elements"): e.max()
    w = Tensor.ones(2, 0, requires_grad=True)
    w.sum().backward()
    assert w.grad.shape == (2, 0)


# --- arithmetic ---

shapes = st.sampled_from([((2, 3), (3,)), ((4, 1), (1, 5)), ((3,), ()), ((), ()), ((2, 1, 7), (5, 1))])
binary = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
          "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
          "==": lambda a, b: a == b, "!=": lambda a, b: a != b}


@quick
@given(shapes, st.sampled_from(list(binary)), st.integers(0, 99))
def test_broadcasting(device, pair, op, seed):
    a, b = (noise(*s, seed=seed + i).round(1) for i, s in enumerate(pair))
    with np.errstate(all="ignore"): same(binary[op](Tensor(a), Tensor(b)), binary[op](a, b))


@pytest.mark.parametrize("op", binary)
def test_numbers_and_arrays_on_either_side(device, op):
    a, f = grid(2, 3) + 1, binary[op]
    same(f(Tensor(a), 2), f(a, 2))
    same(f(2, Tensor(a)), f(2, a))
    same(f(Tensor(a), a.T.copy().T), f(a, a))
    assert isinstance(f(a, Tensor(a)), Tensor)
    same(f(a, Tensor(a)), f(a, a))


def test_integer_operators(device):
    a, b = np.array([7, -7, 7, -7], "i4"), np.array([2, 2, -2, -2], "i4")
    for f in (lambda x, y: x // y, lambda x, y: x % y, lambda x, y: x & y, lambda x, y: x | y, lambda x, y: x ^ y):
        assert f(Tensor(a), Tensor(b)).tolist() == f(a, b).tolist()
    assert (Tensor([1, 2]) << 3).tolist() == [8, 16] and (Tensor([-8, 8]) >> 1).tolist() == [-4, 4]
    assert (~Tensor([0, 5])).tolist() == [-1, -6] and (~Tensor([True, False])).tolist() == [False, True]
    assert (7 // Tensor([2, 3])).tolist() == [3, 2] and (7 % Tensor([2, 4])).tolist() == [1, 3]
    assert (Tensor([1, 2]) / 2).tolist() == [0.5, 1.0]


def test_integers_never_kill_the_process(device):
    lowest = Tensor([-2**31, 5, -5])
    assert (lowest // Tensor([-1, 0, 0])).tolist() == [-2**31, 0, 0]
    assert (lowest % Tensor([-1, 0, 0])).tolist() == [0, 0, 0]


def test_functions(device):
    a = noise(3, 4)
    for name in "exp exp2 sin cos tanh floor ceil trunc square abs sign".split():
        same(getattr(Tensor(a), name)(), getattr(np, name)(a), 1e-5, 1e-5)
    for name in "log log2 sqrt reciprocal".split():
        same(getattr(Tensor(abs(a)), name)(), getattr(np, name)(abs(a)), 1e-5, 1e-5)
    same(Tensor(a).relu(), np.maximum(a, 0))
    same(Tensor(a).sigmoid(), 1 / (1 + np.exp(-a)))
    same((Tensor(a) > 0).where(Tensor(a), -1), np.where(a > 0, a, -1))
    same(Tensor(a).maximum(0.5).minimum(1), a.clip(0.5, 1))
    same(Tensor(a).clip(-1, 1), a.clip(-1, 1))
    same(Tensor(a) ** 3, a ** 3, 1e-4)
    same(2 ** Tensor(a), 2 ** a)


def test_equality_is_elementwise_and_tensors_are_keys(device):
    a, b = Tensor([1, 2]), Tensor([1, 3])
    assert (a == b).tolist() == [True, False] and (a != b).tolist() == [False, True]
    assert len({a: 0, b: 1}) == 2
    with pytest.raises(ValueError, match="any"): bool(a == b)
    assert (a == a).all()


def test_casts(device):
    assert Tensor([65536.0]).half().tolist() == [math.inf]
    assert Tensor([1.9, -1.9, math.nan, 1e20, -1e20]).int().tolist() == [1, -1, 0, 2**31 - 1, -2**31]
    assert Tensor([0.0, 2.0]).bool().tolist() == [False, True]
    assert Tensor([1.0]).bitcast("int32").tolist() == [0x3F800000]
    assert Tensor(range(2000)).half().mean().item() == pytest.approx(999.5, rel=1e-3)
    assert Tensor.full(2000, 600.0, dtype="float16").mean().item() == 600


# --- NaN and infinity ---

def test_nan_survives(device):
    nan = math.nan
    for i in range(3):
        row = [1.0, 5.0, 2.0]
        row[i] = nan
        assert math.isnan(Tensor(row).max().item()) and math.isnan(Tensor(row).min().item())
        assert Tensor(row).argmax().item() == i
    assert math.isnan(Tensor([nan]).relu().item()) and math.isnan(Tensor(nan).maximum(3.0).item())
    inf = Tensor(math.inf)
    assert math.isnan((inf - inf).item()) and math.isnan((inf * 0).item()) and math.isnan((0 * inf).item())
    assert math.isnan((Tensor(nan) * 0).item()) and math.isnan((Tensor.full((3,), math.inf) - math.inf).sum().item())
    assert Tensor([-math.inf] * 3).logsumexp().item() == -math.inf
    assert (Tensor(nan) == nan).item() is False


def test_masked_scores(device):
    x = Tensor([[1.0, -math.inf, 2.0]], requires_grad=True)
    loss = x.cross_entropy(Tensor([2]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-1)), rel=1e-5)
    loss.backward()
    p = 1 / (1 + math.e)
    same(x.grad, [[p, 0, -p]])


# --- shapes ---

def test_movement(device):
    a = grid(2, 3, 4)
    t = Tensor(a)
    same(t.reshape(4, -1), a.reshape(4, -1))
    same(t.permute(2, 0, 1), a.transpose(2, 0, 1))
    same(t.T, a.T)
    same(t.transpose(0, 2), a.swapaxes(0, 2))
    same(t[:, :1].expand(2, 5, 4), np.broadcast_to(a[:, :1], (2, 5, 4)))
    same(t.pad(((1, 0), (0, 2), (0, 0)), 9), np.pad(a, ((1, 0), (0, 2), (0, 0)), constant_values=9))
    same(t.shrink(((0, 1), (1, 3), None)), a[0:1, 1:3])
    same(t.flip(0, 2), a[::-1, :, ::-1])
    same(t.squeeze().unsqueeze(1), a[:, None])
    same(t.flatten(1), a.reshape(2, -1))
    same(Tensor(grid(7)).window(0, 3, 2), [[0, 1, 2], [2, 3, 4], [4, 5, 6]])


def test_reductions(device):
    a = noise(3, 4, 5)
    t = Tensor(a)
    for axis in (None, 0, -1, (0, 2)):
        same(t.sum(axis), a.sum(axis), 1e-4, 1e-5)
        same(t.mean(axis, keepdim=True), a.mean(axis, keepdims=True), 1e-4, 1e-5)
        same(t.max(axis), a.max(axis))
        same(t.min(axis), a.min(axis))
        same(t.var(axis), a.var(axis, ddof=1), 1e-4)
        same(t.prod(axis), a.prod(axis), 1e-4)
    for axis in (0, 1, 2):
        assert t.argmax(axis).tolist() == a.argmax(axis).tolist()
        assert t.argmin(axis).tolist() == a.argmin(axis).tolist()
    e = np.exp(a - a.max(-1, keepdims=True))
    same(t.softmax(), e / e.sum(-1, keepdims=True))
    same(t.log_softmax(1), a - np.log(np.exp(a).sum(1, keepdims=True)), 1e-5, 1e-5)
    assert Tensor([1, 1, 0]).argmax().item() == 0 and Tensor([[True, False]]).any(1).tolist() == [True]


def test_matmul(device):
    for s, t in (((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (6, 4, 2))):
        a, b = noise(*s), noise(*t, seed=1)
        same(Tensor(a) @ Tensor(b), a @ b, 1e-4, 1e-5)


def attention(q, k, v, mask=None, causal=False):
    "As in the book, with numpy in float64."
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    n, m = scores.shape[-2:]
    seen = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    if causal: seen = seen & (np.arange(m) <= np.arange(n)[:, None] + m - n)
    e = np.where(seen, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("shapes", [((5, 4), (5, 4), (5, 4)), ((3, 4), (6, 4), (6, 7)), ((1, 4), (6, 4), (6, 4)),
                                    ((2, 3, 5, 8), (2, 3, 5, 8), (2, 3, 5, 8)), ((3, 5, 4), (1, 7, 4), (7, 2)), ((1, 1), (1, 1), (1, 1))], ids=str)
def test_attention(device, shapes):
    q, k, v = (noise(*s, seed=i) for i, s in enumerate(shapes))
    n, m = q.shape[-2], k.shape[-2]
    some = np.random.default_rng(5).random((n, m)) < 0.6
    some[:, 0] = True
    for kw in ({}, {"causal": True}, {"mask": some}, {"mask": some, "causal": True}, {"mask": some[0]}):
        ours = {name: Tensor(x) if name == "mask" else x for name, x in kw.items()}
        same(Tensor(q).attention(Tensor(k), Tensor(v), **ours), attention(q, k, v, **kw), 1e-4, 1e-5)


def test_attention_hides_exactly():
    q, k, v = (noise(6, 8, seed=i) for i in range(3))
    before = Tensor(q).attention(Tensor(k), Tensor(v), causal=True).numpy()
    k[5], v[5] = 1e6, -1e6
    after = Tensor(q).attention(Tensor(k), Tensor(v), causal=True).numpy()
    assert np.array_equal(before[:5], after[:5]) and np.allclose(before[0], v[0])
    nowhere = Tensor(q).attention(Tensor(k), Tensor(v), mask=Tensor([False] * 6))
    assert np.isnan(nowhere.numpy()).all()


# --- indexing ---

PLACES = [lambda t: t(1), lambda t: t(-1), lambda t: (slice(None), t(2)), lambda t: (t(0), t(3)), lambda t: (1, t(2), slice(1, 3)), lambda t: (..., t(0)),
          lambda t: (None, t(1)), lambda t: (t(1), None, ..., None), lambda t: (slice(0, 3, 2), t(-2), slice(None, None, -1)), lambda t: (t(1), t(2), t(3))]


@pytest.mark.parametrize("key", PLACES, ids=map(str, range(len(PLACES))))
@pytest.mark.parametrize("place", (Tensor, lambda k: Tensor.variable(k, -4, 3)), ids=("tensor", "variable"))
def test_single_places_that_are_data(device, key, place):
    a, x = grid(3, 4, 4).astype(np.float32), Tensor(grid(3, 4, 4)).float().realize()
    theirs, ours = key(int), key(place)
    same(x[ours], a[theirs])
    new = -np.arange(a[theirs].size).reshape(a[theirs].shape).astype(np.float32)
    x[ours], a[theirs] = Tensor(new), new
    same(x, a)
    x[ours], a[theirs] = 7.0, 7
    same(x, a)

KEYS = [0, -1, slice(1, 3), slice(None, None, -1), slice(4, None, -2), slice(3, 1), None, ..., (0, 1), (..., 0),
        (slice(None), 2), (None, 0, ..., None), (slice(1), slice(None, None, 2)), (-1, ..., slice(-2, None)),
        [0, 2], [[0, 1], [2, -1]], ([0, 1], [2, 0]), (slice(None), [2, 0, 0]), ([1, 0], slice(1, 3)),
        ([1], slice(None), [2, 0]), (0, slice(None), [1, 2]), (slice(None), 1, [1, 2]), ([2, 0], None, 1),
        (..., [0, 3]), (np.array([1, 0]), 2), (slice(1, None), [[0], [2]], [1, 3]), (None, [0, 1]), (np.int64(1), [0, 1])]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing_as_numpy_does(device, key):
    a = grid(3, 4, 4)
    same(Tensor(a)[key], a[key])
    if isinstance(key, tuple) and any(isinstance(k, list) for k in key):
        tensors = tuple(Tensor(k) if isinstance(k, list) else k for k in key)
        same(Tensor(a)[tensors], a[key])


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_setting_as_numpy_does(device, key):
    a, b = grid(3, 4, 4), grid(3, 4, 4)
    t = Tensor(a)
    value = noise(*a[key].shape)
    t[key] = value
    b[key] = value
    same(t, b)
    t[key] = -1
    b[key] = -1
    same(t, b)


@quick
@given(st.lists(st.integers(-3, 2), min_size=1, max_size=5), st.lists(st.integers(-4, 3), min_size=1, max_size=5))
def test_lookup(device, i, j):
    a = grid(3, 4, 2)
    n = min(len(i), len(j))
    same(Tensor(a)[Tensor(i[:n]), Tensor(j[:n])], a[i[:n], j[:n]])
    same(Tensor(a)[Tensor(i).unsqueeze(1), Tensor(j)], a[np.array(i)[:, None], j])


def test_indices_that_do_not_fit(device):
    t = Tensor(grid(3, 4))
    for key in (3, -4, (0, 4), (0, 0, 0)):
        with pytest.raises(IndexError): t[key]
    for key in ([0.5], Tensor([True, False, True]), True):
        with pytest.raises(IndexError, match="integers"): t[key]
    with pytest.raises(IndexError, match="no element"): Tensor.zeros(0, 4)[[0]]
    far = Tensor([-2**31, -100, -4, 3, 100, 2**31 - 1])
    assert t[far, 0].tolist() == [0, 0, 0, 8, 8, 8]                        # held at the ends
    assert t.gather(0, far.unsqueeze(1)).tolist() == [[0], [0], [0], [8], [8], [8]]
    assert Tensor.zeros(3).scatter_add(0, far, Tensor.ones(6)).tolist() == [3, 0, 3]


def test_gather_and_scatter(device):
    a, i = noise(4, 5), np.array([[0, 3, 1], [2, 2, 2]])
    same(Tensor(a).gather(0, Tensor(i)), np.take_along_axis(a[:, :3], i, 0))
    same(Tensor(a).gather(-1, Tensor(i)), np.take_along_axis(a[:2], i, 1))
    b, src = noise(4, 3, seed=1), noise(2, 3, seed=2)
    expected = b.copy()
    np.add.at(expected, (i, np.arange(3)[None]), src)
    same(Tensor(b).scatter_add(0, Tensor(i), Tensor(src)), expected)
    assert Tensor([1, 1]).scatter_reduce(0, Tensor([0, 0]), Tensor([2, 3]), "prod").tolist() == [6, 1]
    assert Tensor([1, 1]).scatter_reduce(0, Tensor([0, 0]), Tensor([2, 3]), "amax").tolist() == [3, 1]
    with pytest.raises(ValueError, match="does not fit"): Tensor(a).gather(0, Tensor([1]))
    with pytest.raises(ValueError, match="does not fit"): Tensor(a).gather(0, Tensor([[1.0]]))


def test_lookup_has_scatter_add_as_gradient(device):
    w = Tensor(grid(4, 2), requires_grad=True)
    w[[1, 1, 3]].sum().backward()
    assert w.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]
    w.grad = None
    dst = Tensor.zeros(4, 2, requires_grad=True)
    picked = dst.scatter_add(0, Tensor([[1], [1]]), w[:2, :1])
    (picked * Tensor(grid(4, 2))).sum().backward()
    assert w.grad.tolist() == [[2, 0], [2, 0], [0, 0], [0, 0]]
    same(dst.grad, grid(4, 2))


def test_cat_and_stack(device):
    a, b = grid(2, 3), grid(4, 3) + 9
    same(Tensor(a).cat(Tensor(b)), np.concatenate([a, b]))
    same(Tensor(a).cat(Tensor(a), Tensor(a), dim=-1), np.concatenate([a] * 3, -1))
    same(Tensor.stack(Tensor(a), Tensor(a), dim=1), np.stack([a, a], 1))
    same(Tensor(a).stack([Tensor(a)], dim=-1), np.stack([a, a], -1))
    assert Tensor([1]).cat(Tensor([0.5])).tolist() == [1, 0.5]
    for bad in (lambda: Tensor(a).cat(Tensor(b), dim=1), lambda: Tensor(a).stack(Tensor(b))):
        with pytest.raises(ValueError, match=r"\(2, 3\), \(4, 3\)"): bad()


# --- windows ---

def slow_conv(x, w, b, stride, padding, dilation, groups):
    "Convolution by its definition."
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2)).astype(np.float64)
    (n, _, h, v), (o, c, kh, kw) = x.shape, w.shape
    oh, ow = ((s - (k - 1) * d - 1) // t + 1 for s, k, d, t in zip((h, v), (kh, kw), dilation, stride))
    y = np.zeros((n, o, oh, ow))
    for f, i, j in np.ndindex(o, oh, ow):
        first = f // (o // groups) * c
        rows, cols = i * stride[0] + np.arange(kh) * dilation[0], j * stride[1] + np.arange(kw) * dilation[1]
        y[:, f, i, j] = (x[:, first:first + c][:, :, rows][..., cols] * w[f]).sum((1, 2, 3)) + b[f]
    return y


@pytest.mark.parametrize("stride, padding, dilation, groups", [
    (1, 0, 1, 1), (2, 1, 1, 1), ((1, 2), (2, 0), 1, 2), (1, 1, 2, 1), (3, 2, (2, 1), 2), (1, 0, 1, 4)])
def test_convolution(device, stride, padding, dilation, groups):
    two = lambda v: v if isinstance(v, tuple) else (v, v)
    x, w, b = noise(2, 4, 7, 8), noise(4, 4 // groups, 3, 3, seed=1), noise(4, seed=2)
    y = Tensor(x).conv2d(Tensor(w), Tensor(b), stride, padding, dilation, groups)
    same(y, slow_conv(x, w, b, two(stride), two(padding), two(dilation), groups), 1e-4, 1e-4)


def test_pooling(device):
    a = noise(2, 3, 6, 6)
    blocks = a.reshape(2, 3, 3, 2, 3, 2)
    same(Tensor(a).max_pool2d(2), blocks.max((3, 5)))
    same(Tensor(a).avg_pool2d((2, 2)), blocks.mean((3, 5)))
    padded = np.pad(a, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    same(Tensor(a).max_pool2d(3, stride=2, padding=1), view.max((-2, -1)))
    low = Tensor.full((1, 1, 2, 2), -5)
    assert low.max_pool2d(2, padding=1).tolist() == [[[[-5, -5], [-5, -5]]]]


# --- gradients ---

def numeric(f, a, eps=1e-4):
    "The derivative of f: array -> number at `a`, by central differences in float64."
    g = np.zeros(a.shape)
    for i in np.ndindex(a.shape):
        lo, hi = a.copy(), a.copy()
        lo[i] -= eps
        hi[i] += eps
        g[i] = (f(hi) - f(lo)) / (2 * eps)
    return g


SMOOTH = {
    "matmul": lambda x: (x @ x.T).tanh().sum(), "softmax": lambda x: (x.softmax(0) ** 2).sum(),
    "attention": lambda x: (x.attention(x.sin(), x * x, causal=True) ** 2).sum(),
    "layer_norm": lambda x: (x.layer_norm() * x.sin()).sum(), "logsumexp": lambda x: x.logsumexp(1).prod(),
    "var": lambda x: x.var(0).sqrt().sum(), "max": lambda x: x.max(1).square().sum(),
    "index": lambda x: (x[[1, 0, 1], ::2] ** 2).sum(), "cat": lambda x: (x.cat(x * 2, dim=1).exp()).sum(),
    "window": lambda x: (x.window(1, 2, 1).sum(-1) ** 3).sum(), "flip": lambda x: (x.flip(0, 1) * x).sum(),
    "pad": lambda x: ((x.pad(((1, 1), (0, 2)), 3) + 1) ** 2).sum(), "gelu": lambda x: x.gelu().sum(),
    "division": lambda x: (x / (x * x + 1)).sum(), "cross_entropy": lambda x: x.cross_entropy(Tensor([0, 3, 1])),
    "conv2d": lambda x: (x.reshape(1, 1, 3, 4).conv2d(x[:2, :2].reshape(1, 1, 2, 2), padding=1) ** 2).sum(),
    "pooling": lambda x: (x.reshape(1, 1, 3, 4).max_pool2d(2, stride=1, padding=1) ** 2).sum(),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_finite_differences(device, name):
    f, a = SMOOTH[name], noise(3, 4).astype(np.float64)
    x = Tensor(a, requires_grad=True)
    f(x).backward()
    same(x.grad, numeric(lambda v: f(Tensor(v)).item(), a), 1e-5, 1e-5)


def test_leaves_of_equal_value_are_not_merged(device):
    w1, w2 = Tensor(3.0, requires_grad=True), Tensor(3.0, requires_grad=True)
    (w1 + w2).backward()
    assert w1.grad.item() == 1 and w2.grad.item() == 1
    z1, z2 = Tensor.zeros(2, requires_grad=True), Tensor.zeros(2, requires_grad=True)
    (z1 * 2 + z2).sum().backward()
    assert z1.grad.tolist() == [2, 2] and z2.grad.tolist() == [1, 1]
    w1.grad = None
    (w1 + w1).backward()
    assert w1.grad.item() == 2


def test_gradients_add_up_until_they_are_dropped(device):
    w = Tensor([1.0, 2.0], requires_grad=True)
    for k in (1, 2): (w * w).sum().backward()
    assert w.grad.tolist() == [4, 8]
    (w * 3).backward(Tensor([1.0, 0.5]))
    assert w.grad.tolist() == [7, 9.5]


def test_higher_derivatives(device):
    x = Tensor(2.0, requires_grad=True)
    first, = (x ** 4).gradient(x)
    second, = first.gradient(x)
    assert first.item() == pytest.approx(32) and second.item() == pytest.approx(48)


def test_special_gradients(device):
    x = Tensor([2.0, 0.0, 3.0], requires_grad=True)
    x.prod().backward()
    assert x.grad.tolist() == [0, 6, 0]
    y = Tensor([1.0, 5.0, 5.0], requires_grad=True)
    y.max().backward()
    assert y.grad.tolist() == [0, 0.5, 0.5]
    z = Tensor([-1.0, 0.0, 2.0], requires_grad=True)
    z.relu().sum().backward()
    assert z.grad.tolist() == [0, 0, 1]
    d = Tensor(3.0, requires_grad=True)
    (d * d.detach()).backward()
    assert d.grad.item() == 3


def test_a_leaf_may_be_computed_between_forward_and_backward(device):
    w = Tensor.rand(3, requires_grad=True)
    loss = (w * w).sum()
    value = w.numpy()
    more = loss + w.sum()
    more.backward()
    same(w.grad, 2 * value + 1)


def test_what_has_no_gradient_says_so(device):
    with pytest.raises(TypeError, match="int32"): Tensor([1], requires_grad=True)
    with pytest.raises(ValueError, match="scalar|one number"): Tensor([1.0, 2.0], requires_grad=True).exp().backward()
    with pytest.raises(ValueError, match="requires_grad"): Tensor(1.0).exp().backward()
    w = Tensor([1.0], requires_grad=True)
    w.requires_grad_(False)
    assert not w.requires_grad and id(w) not in leaves
    w.requires_grad_()
    w.sum().backward()
    assert w.grad.tolist() == [1]


# --- assignment ---

def test_assignment_reads_before_it_writes(device):
    a = Tensor([0, 1, 2, 3])
    a[1:].assign(a[:-1])
    assert a.tolist() == [0, 0, 1, 2]
    b = Tensor([0, 1, 2, 3]).realize()
    b[1:] = b[:-1]
    b[:2] = b[2:]
    assert b.tolist() == [1, 2, 1, 2]


def test_assignment_through_views(device):
    a = np.zeros((3, 4), np.float32)
    t = Tensor(a)
    t.T[1].assign(Tensor([1.0, 2.0, 3.0]))
    a.T[1] = [1, 2, 3]
    same(t, a)
    t[::2, ::-1][0, 1:3] = Tensor([7.0, 8.0])
    a[::2, ::-1][0, 1:3] = [7, 8]
    same(t, a)
    t.reshape(2, 6)[1, ::2] = 5
    a.reshape(2, 6)[1, ::2] = 5
    same(t, a)
    t.flatten().reshape(4, 3).T[0] += 1
    a.reshape(4, 3).T[0] += 1
    same(t, a)
    t[1, 2] = 9
    a[1, 2] = 9
    same(t, a)
    with pytest.raises(ValueError, match="expand"): t[:1].expand(5, 4).assign(0)


def test_views_see_assignments_and_results_keep_their_values(device):
    t = Tensor([1.0, 2.0, 3.0])
    view, result = t[1:], t[1:] * 10
    t.assign([4, 5, 6])
    assert view.tolist() == [5, 6] and result.tolist() == [20, 30]
    view[0] = 0
    assert t.tolist() == [4, 0, 6] and view.tolist() == [0, 6]
    old = t + 0
    t[:] = 1
    assert old.tolist() == [4, 0, 6] and t.tolist() == [1, 1, 1]


def test_assignment_checks(device):
    t = Tensor([1.0, 2.0])
    with pytest.raises(ValueError, match=r"\(3,\)"): t.assign([1, 2, 3])
    with pytest.raises(TypeError, match="int32"): t.assign(Tensor([1, 2]))
    t.assign(7)
    assert t.tolist() == [7, 7]


def test_assigned_values_are_computed_with_the_next_result(device):
    w = Tensor(1.0, requires_grad=True)
    for _ in range(50):
        w.grad = None
        loss = (w - 3).square().backward()
        w.assign(w - 0.1 * w.grad)
        loss.item()
        assert len(toposort(w.node)) <= 2                                  # the past is forgotten
    assert w.item() == pytest.approx(3, abs=1e-3)


# --- randomness ---

def test_random_numbers_do_not_depend_on_when_they_are_read(device):
    Tensor.manual_seed(7)
    a, b = Tensor.rand(5), Tensor.rand(5)
    backwards = b.tolist(), a.tolist()
    Tensor.manual_seed(7)
    c, d = Tensor.rand(5), Tensor.rand(5)
    forwards = c.tolist(), d.tolist()
    assert backwards == forwards[::-1] and forwards[0] != forwards[1]
    assert a.tolist() == forwards[0]                                        # and not on how often


def test_random_distributions(device):
    Tensor.manual_seed(1)
    u, n, k = Tensor.rand(20000).numpy(), Tensor.randn(20000).numpy(), Tensor.randint(20000, low=-2, high=3).numpy()
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.01
    assert abs(n.mean()) < 0.03 and abs(n.std() - 1) < 0.03
    assert sorted(set(k.tolist())) == [-2, -1, 0, 1, 2]
    v = Tensor.uniform(1000, low=-3, high=-1).numpy()
    assert -3 <= v.min() and v.max() < -1


# --- laziness, devices, looking ---

def test_nothing_runs_until_it_is_read(device):
    a = Tensor([1.0, 2.0])
    b = (a + 1) * 2
    assert b.buffer is None and "not computed" in repr(b)
    assert b.tolist() == [4, 6] and b.buffer is not None and "not" not in repr(b)
    c, d = a + 5, a * 5
    realize(c, d)
    assert c.buffer is not None and d.buffer is not None


def test_python_protocols(device):
    t = Tensor([[1.5, 2.0], [3.0, 4.0]])
    assert len(t) == 2 and [r.tolist() for r in t] == t.tolist()
    assert float(t[0, 0]) == 1.5 and int(t[1, 1]) == 4 and f"{t.sum():.2f}" == "10.50"
    assert bool(Tensor(1)) and not Tensor(0.0)
    assert np.asarray(t).tolist() == t.tolist() and np.asarray(t, np.int32).dtype == np.int32
    with pytest.raises(TypeError): len(Tensor(1))
    with pytest.raises(ValueError, match="4 numbers"): t.item()
    with pytest.raises(AttributeError, match="no 'nonsense'"): t.nonsense
    assert not hasattr(t, "nonsense")


def test_pictures_say_what_is_lazy(device):
    a = Tensor([1.0, 2.0])
    b = a * 2
    assert "dashed" in b.draw().alt
    b.realize()
    assert "dashed" not in b.draw().alt


def test_a_later_chapter_adds_a_method():
    @method
    def twice_plus(x, n): return x * 2 + n
    try:
        assert Tensor([1.0], device="numpy").twice_plus(3).tolist() == [5]
    finally: del methods["twice_plus"]
    def relu(x): return x
    with pytest.raises(ValueError, match="already"): method(relu)


@pytest.mark.parametrize("wrong, words", [
    (lambda: Tensor([[1, 2], [3]]), r"ragged.*\(1,\) and \(2,\)"), (lambda: Tensor(["a"]), "str 'a'"),
    (lambda: Tensor([1, None]), "NoneType"), (lambda: Tensor([300], dtype="uint8"), "uint8"),
    (lambda: Tensor([1], dtype="float99"), "float99"), (lambda: Tensor([1.0]) + "b", "str 'b'"),
    (lambda: Tensor.zeros(2, 3) + Tensor.zeros(4), r"\(2, 3\) and \(4,\)"),
    (lambda: Tensor.zeros(2, 3) @ Tensor.zeros(2, 3), r"matmul of \(2, 3\) and \(2, 3\)"),
    (lambda: Tensor.zeros(5, 4).attention(Tensor.zeros(6, 4), Tensor.zeros(5, 4)), r"attention of \(5, 4\), \(6, 4\) and \(5, 4\)"),
    (lambda: Tensor.zeros(5, 4).attention(Tensor.zeros(6, 3), Tensor.zeros(6, 3)), r"\(5, 4\) and \(3, 6\)"),
    (lambda: Tensor.variable(8, 0, 7, name="position"), "position is 8, which is not one of 0 to 7"), (lambda: Tensor.variable(-1, 0, 7), "-1"),
    (lambda: Tensor.zeros(2, 3).reshape(4), r"\(2, 3\).*\(4,\)"), (lambda: Tensor.zeros(2).sum(1), "axis 1"),
    (lambda: Tensor.zeros(1, 3, 4, 4).conv2d(Tensor.zeros(2, 4, 3, 3)), r"\(1, 3, 4, 4\).*\(2, 4, 3, 3\)"),
    (lambda: Tensor.zeros(3, 4).conv2d(Tensor.zeros(2, 4, 3, 3)), r"\(3, 4\).*\(2, 4, 3, 3\)"),
    (lambda: Tensor.zeros(2, 3).cross_entropy(Tensor([1, 2, 0])), r"\(2,\), got int32 \(3,\)"),
    (lambda: Tensor.zeros(1, 1, 2, 2).max_pool2d(3), "window of size 3"), (lambda: Tensor.zeros(2).to("abacus"), "abacus"),
    (lambda: Tensor([2**40]), "int32"), (lambda: Tensor.zeros(2)[0:1, 0:1], "2 indices")])
def test_errors_name_what_is_wrong(wrong, words, monkeypatch):
    monkeypatch.setenv("TINYLIT_DEVICE", "numpy")
    with pytest.raises((ValueError, TypeError, IndexError, RuntimeError), match=words): wrong()


# --- size ---

def test_many_sources_and_deep_graphs(device):
    parts = [Tensor([float(i)]) for i in range(2000)]
    assert parts[0].cat(*parts[1:]).sum().item() == 2000 * 1999 / 2
    assert Tensor.stack(*parts).shape == (2000, 1)
    x = Tensor([1.0, 2.0])
    y = x
    for _ in range(10_000): y = y + 1
    assert y.tolist() == [10001, 10002]
    w = Tensor([2.0], requires_grad=True)
    total = w * 0
    for i in range(3000): total = total + w * i
    total.sum().backward()
    assert total.item() == 3000 * 2999 and w.grad.item() == 3000 * 2999 / 2


def test_a_computed_value_forgets_its_past_also_as_a_view(device):
    x, s = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor(1.0)
    for _ in range(20):
        x, s = (x + 1).T, (s + x.sum()) * 0.5
        realize(x, s)
        assert len(toposort(x.node)) <= 3 and len(toposort(s.node)) <= 2
    big = Tensor.zeros(1000) + 1
    row = big[:3].realize()
    assert row.tolist() == [1, 1, 1] and big.buffer is None                # only what was asked
    w = Tensor([2.0, 3.0], requires_grad=True)
    loss = (w * w).sum()
    assert loss.item() == 13 and loss.buffer is not None
    loss.backward()
    assert w.grad.tolist() == [4, 6]


def test_copies_are_places_of_their_own(device):
    w = Tensor([1.0, 2.0], requires_grad=True)
    for twin in (copy.deepcopy(w), copy.copy(w), pickle.loads(pickle.dumps(w))):
        assert twin.requires_grad and twin.tolist() == [1, 2] and twin.device is w.device
        w.grad = None
        (w * 2 + twin).sum().backward()
        assert w.grad.tolist() == [2, 2] and twin.grad.tolist() == [1, 1]
        twin.assign([5, 6])
        assert w.tolist() == [1, 2]
    assert copy.deepcopy(Tensor([[1, 2]]).T).tolist() == [[1], [2]] and not copy.deepcopy(w * 2).requires_grad


# --- what goes wrong says what, and what to do ---

MISTAKES = [
    (lambda x: x.sum("a"), "reduce: axis 'a'"), (lambda x: x.unsqueeze(1.5), "axis 1.5"),
    (lambda x: x.flatten(1, 0), r"1 to 0 of \(2, 3\)"),
    (lambda x: x @ [1, 2, 3], "matmul"), (lambda x: x.matmul(3), "matmul"),
    (lambda x: x.gather(0, [[0, 0, 0]]), "gather"), (lambda x: x.cat(3), "joining of 3"),
    (lambda x: x.scatter_add(0, Tensor([[0, 0, 0]]), 3), "scatter of 3"),
    (lambda x: x.scatter_reduce(0, Tensor([[0, 0, 0]]), x[:1], "mul"), "'mul'.*sum, prod, amax"),
    (lambda x: x.cross_entropy([0, 1]), "cross_entropy"), (lambda x: x.conv2d(3), "conv2d of 3"),
    (lambda x: x.conv2d(Tensor(1.0)), r"conv2d of \(2, 3\) with weight \(\)"),
    (lambda x: x.assign("a"), "does not fit float32"), (lambda x: Tensor(2**40), "dtype="),
    (lambda x: Tensor.zeros(-1), r"\(-1,\)"), (lambda x: Tensor.full(-1, 0), r"\(-1,\)"),
    (lambda x: Tensor.rand(2, -1), r"\(2, -1\)"), (lambda x: Tensor.eye(-1), r"\(-1,\)"),
    (lambda x: Tensor.arange(0, 5, 0), "steps of 0"), (lambda x: Tensor.manual_seed(1.5), "integer"),
    (lambda x: Tensor.rand(2, dtype="int32"), "randint"), (lambda x: Tensor.randn(2, dtype="int8"), "randint"),
    (lambda x: x.sum().gradient(3), "gradient of 3"),
    (lambda x: Tensor.zeros(0).gather(0, Tensor([0])), "does not fit"),
    (lambda x: Tensor.zeros(0).scatter_add(0, Tensor([0]), Tensor([1.0])), "does not fit")]


@pytest.mark.parametrize("wrong, words", MISTAKES)
def test_a_mistake_names_the_operation(device, wrong, words):
    with pytest.raises((ValueError, TypeError), match=words): wrong(Tensor(grid(2, 3)))


def test_axes_are_whole_numbers_of_any_make(device):
    same(Tensor(grid(2, 3)).sum(np.int64(1)), [3, 12])
    same(Tensor(grid(2, 3)).max([0, np.int8(1)]), 5)


def test_nothing_is_put_nowhere(device):
    t = Tensor([1.0, 2.0])
    t[[]] = 5.0
    assert t.tolist() == [1, 2]
    assert Tensor.zeros(0).gather(0, Tensor([], dtype="int32")).tolist() == []


def test_a_range_of_wide_numbers(device):
    assert Tensor.arange(2**40, 2**40 + 2, dtype="int64").tolist() == [2**40, 2**40 + 1]
    assert Tensor.arange(0, 1, 0.1, dtype="float64").tolist()[3] == 3 * 0.1


def test_the_gradient_that_comes_in_may_be_numbers(device):
    w = Tensor([1.0, 2.0], requires_grad=True)
    (w * w).backward([1, 10])
    assert w.grad.tolist() == [2, 40]
    other = Tensor([1.0, 1.0], device="c" if device == "numpy" else "numpy")
    with pytest.raises(ValueError, match="cannot meet"): (w * w).backward(other)


def test_products_in_a_matmul_are_as_wide_as_their_sum(device):
    a, b = (Tensor([300.0, x], dtype="float16") for x in (-300.0, 300.0))
    assert (a @ b).item() == 0 and (a @ b).dtype.name == "float16"
    assert (Tensor([100, 100], dtype="int8") @ Tensor([100, 100], dtype="int8")).item() == 20_000


def test_a_scatter_to_one_place_adds_every_turn(device):
    x = Tensor([1.0, 2.0, 3.0, 4.0])
    here = Tensor.full(4, 0, dtype="int32")                       # known before anything runs
    assert Tensor.zeros(1).scatter_add(0, here, x).tolist() == [10.0]
    assert Tensor.zeros(3).scatter_add(0, here + 2, x).tolist() == [0.0, 0.0, 10.0]
    assert Tensor.zeros(1).scatter_add(0, Tensor([5, -5, 0, 1]), x).tolist() == [10.0]


def test_leaves_made_from_one_value_are_places_of_their_own(device):
    w = Tensor([1.0])
    a, b = Tensor(w, requires_grad=True), Tensor(w, requires_grad=True)
    (a + b * 2 + w).sum().backward()
    assert a.grad.tolist() == [1] and b.grad.tolist() == [2]
    def wishes(): return w + 1, w + 1, w + 1
    for c, d, e in ([t.realize() for t in wishes()], realize(*(three := wishes())) or three):
        c, d = c.requires_grad_(), d.requires_grad_()
        (c + d * 2 + e + (w + 1)).sum().backward()
        assert c.grad.tolist() == [1] and d.grad.tolist() == [2]


def test_positions_are_on_the_device_of_what_they_name(device):
    other = Tensor([0], device="c" if device == "numpy" else "numpy")
    for f in (lambda x: x.gather(0, other), lambda x: x.scatter_add(0, other, Tensor([1.0]))):
        with pytest.raises(ValueError, match="cannot meet"): f(Tensor([1.0, 2.0]))


def test_a_graph_is_no_index(device):
    with pytest.raises(TypeError, match="Node"): Tensor([1.0, 2.0])[Tensor([1]).node]


@pytest.mark.parametrize("shape", ((1 << 18,), (3, 1 << 19), (1000, 1009), (0, 5), (1 << 19, 1)))
def test_long_reductions(shape):
    "What is reduced in parts, and what is just not, is what numpy says."
    x = np.random.default_rng(1).standard_normal(shape).astype("float32")
    t = Tensor(x, device="c")
    np.testing.assert_allclose(t.sum().item(), x.sum(dtype="d"), rtol=1e-5, atol=1e-2)
    np.testing.assert_allclose((t * 2).sum(-1).numpy(), 2 * x.sum(-1, dtype="d"), rtol=1e-5, atol=1e-2)
    if x.size: assert t.max().item() == x.max()


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 2), (1, 2)])
def test_the_product_of_all_others(device, axis):
    a = np.random.default_rng(3).integers(-2, 3, (3, 2, 4)).astype("f")             # with zeros
    axes = tuple(range(3)) if axis is None else axis
    right = np.empty_like(a)
    for place in np.ndindex(a.shape):
        one = a.copy()
        one[place] = 1
        right[place] = one.prod(axes, keepdims=True)[tuple(0 if n == 1 else i for i, n in zip(place, one.prod(axes, keepdims=True).shape))]
    same(Tensor(a, device=device).others(axis), right)
    with pytest.raises(ValueError, match="no axis"): Tensor(3.0, device=device).others()
