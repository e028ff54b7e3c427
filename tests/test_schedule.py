"Schedules change no result: any sequence of legal decisions, on small kernels with awkward sizes; illegal ones are refused."
import os
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tinylit import Tensor, jit
from tinylit.backend.device import Unavailable, device
from tinylit.compiler import realize
from tinylit.compiler.fuse import fuse
from tinylit.compiler.expand import expand
from tinylit.compiler.numerics import numerics
from tinylit.compiler.place import legal_loops, place
from tinylit.compiler.schedule import Opt, apply, attempt, loops_of, merge_loops, objection, schedule, stores_in
from tinylit.compiler.schedule import thread_opts, tiles
from tinylit.graph.algebra import size
from tinylit.graph.node import workspace
from tinylit.ops.text import show
from tinylit.nn.optim import Adam

try: C = device("c")
except Unavailable: pytest.skip("no C compiler", allow_module_level=True)

KINDS = ("VECTOR", "JAM", "UNROLL", "LOOP", "PARALLEL", "OUTER", "STAGE", "ACCUMULATE", "REUSE", "MERGE")
DECISIONS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.sampled_from((2, 3, 4, 5, 7, 8, 16))), max_size=9)
FEW = settings(max_examples=int(os.environ.get("TINYLIT_SCHEDULES", 20)), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def on_c(monkeypatch): monkeypatch.setenv("TINYLIT_DEVICE", "c")


def decided(decisions):
    "A stage that takes these decisions, each on one of the loops that are there; what is refused changes nothing."
    def stage(root, limits):
        for kind, which, amount in decisions:
            if kind == "MERGE": root = merge_loops(root); continue
            loops = sorted(loops_of(root))
            if not loops: return root
            if kind in ("STAGE", "ACCUMULATE"): amount %= 3                 # an argument; how many loops stay outside
            if kind == "REUSE": amount = loops[amount % len(loops)]         # another loop
            opt, before = Opt(kind, loops[which % len(loops)], amount), show(root)
            if objection(root, opt):
                with pytest.raises(ValueError, match="Opt"): apply(root, opt)
                assert show(root) == before and attempt(root, [opt]) is root
            else: root = apply(root, opt)
        return root
    return stage


def under(decisions, run):
    "What `run()` gives when every kernel is scheduled by these decisions."
    kept, realize.stages["schedule"] = realize.stages["schedule"], decided(decisions)
    realize.schedule_of.cache_clear()
    try: return run()
    finally:
        realize.stages["schedule"] = kept
        realize.schedule_of.cache_clear()


def values(*shape, seed=0): return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def at_most(x): return np.exp(x - x.max(-1, keepdims=True))


A, B, V, W = values(7, 13), values(13, 5, seed=1), values(13, seed=2), values(7, 13, seed=3)
WHERE = np.array([2, 0, 2, 1, 2], "int32")


def scattered():
    out = np.zeros((3, 13), "float32")
    np.add.at(out, WHERE, A[:5])
    return out


def padded():
    x = np.pad(A, ((0, 0), (1, 1)))
    return x[:, :-2] + x[:, 1:-1] * 2 + x[:, 2:]


KERNELS = {     # name -> the tensors, and what numpy says
    "elementwise":  lambda: ([Tensor(A) * Tensor(V) + 1], [A * V + 1]),
    "one element":  lambda: ([Tensor(V)[:1] * 3], [V[:1] * 3]),
    "a scalar":     lambda: ([Tensor(V).sum() * 2], [V.sum() * 2]),
    "rows":         lambda: ([Tensor(A).sum(1)], [A.sum(1)]),
    "columns":      lambda: ([Tensor(A).sum(0)], [A.sum(0)]),
    "largest":      lambda: ([Tensor(A).max(1)], [A.max(1)]),
    "everything":   lambda: ([Tensor(A).sum()], [A.sum()]),
    "product":      lambda: ([Tensor(A) @ Tensor(B)], [A @ B]),
    "transposed":   lambda: ([Tensor(A) @ Tensor(W).transpose(0, 1)], [A @ W.T]),
    "layer":        lambda: ([(Tensor(A) @ Tensor(B) + 1).relu()], [np.maximum(A @ B + 1, 0)]),
    "softmax":      lambda: ([Tensor(A).softmax(1)], [at_most(A) / at_most(A).sum(1, keepdims=True)]),
    "group":        lambda: (lambda s: [s, Tensor(A) - s])(Tensor(A).mean(1, keepdim=True)),
    "turned":       lambda: ([Tensor(A).flip(1).transpose(0, 1)], [A[:, ::-1].T]),
    "padded":       lambda: ([(lambda x: x[:, :-2] + x[:, 1:-1] * 2 + x[:, 2:])(Tensor(A).pad(((0, 0), (1, 1))))], [padded()]),
    "side by side": lambda: ([Tensor(A).cat(Tensor(W), dim=1)], [np.concatenate([A, W], 1)]),
    "gathered":     lambda: ([Tensor(A)[Tensor(WHERE)]], [A[WHERE]]),
    "scattered":    lambda: ([Tensor.zeros(3, 13).scatter_add(0, index(), Tensor(A[:5]))], [scattered()]),
    "booleans":     lambda: ([(Tensor(A) > 0).any(1)], [(A > 0).any(1)]),
    "integers":     lambda: ([Tensor((A * 9).astype("int32")).sum(0)], [(A * 9).astype("int32").sum(0)]),
    "doubles":      lambda: ([Tensor(A.astype("float64")).sum(1)], [A.astype("float64").sum(1)]),
}


def index(): return Tensor(WHERE).reshape(5, 1).expand(5, 13)


def group(make):
    made = make()
    if len(made) == 2 and isinstance(made[0], list): return made
    mean = A.mean(1, keepdims=True)
    return made, [mean, A - mean]


@pytest.mark.parametrize("name", KERNELS)
@given(decisions=DECISIONS)
@FEW
def test_any_legal_decisions(name, decisions):
    def run():
        tensors, wanted = group(KERNELS[name])
        tensors[0].realize(*tensors[1:])
        return [t.numpy() for t in tensors], wanted
    for got, wanted in zip(*under(decisions, run)):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def adam_in_numpy(x, g, steps, lr=0.01, b1=0.9, b2=0.999, eps=1e-8):
    m = v = np.zeros_like(x)
    for t in range(1, steps + 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        x = x - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return x


@pytest.mark.parametrize("n", (1, 10, 17, 40))
@given(decisions=DECISIONS)
@settings(FEW, max_examples=8)
def test_adam_in_place(n, decisions):
    x, g = values(n, seed=4), values(n, seed=5)

    def run():
        p = Tensor(x, requires_grad=True)
        optimizer, factor = Adam([p], lr=0.01), Tensor(g)

        @jit
        def step():
            optimizer.zero_grad()
            loss = (p * factor).sum()
            loss.backward()
            optimizer.step()
            return loss
        for _ in range(4): step()
        return p.numpy()
    np.testing.assert_allclose(under(decisions, run), adam_in_numpy(x, g, 4), rtol=1e-4, atol=1e-6)


def sinks(*tensors):
    "The kernels of `tensors`, before any decision."
    roots = realize.canonical([t.node for t in tensors])
    return [k.sink for k in fuse(roots, C.limits)[0]]


def refused(root, *opt):
    before = show(root)
    with pytest.raises(ValueError) as error: apply(root, Opt(*opt))
    assert show(root) == before and attempt(root, [Opt(*opt)]) is root
    return str(error.value)


def loop_of(root, n): return next(number for number, r in loops_of(root).items() if size(r) == n)


def test_what_is_refused():
    with workspace():
        product, = sinks(Tensor(A) @ Tensor(B))
        i, k, j = (loop_of(product, n) for n in (7, 13, 5))
        assert "no such loop" in refused(product, "JAM", 99, 2)
        assert "no such kind" in refused(product, "SWIRL", i, 2)
        for kind, loop in (("JAM", i), ("VECTOR", j), ("UNROLL", k)):
            for amount in (-1, 0, 1, 14): assert "at most its size" in refused(product, kind, loop, amount)
        assert "2, 4, 8" in refused(product, "VECTOR", i, 3)
        assert "is a reduction" in refused(product, "JAM", k, 2)
        assert "is a reduction" in refused(product, "PARALLEL", k)
        assert "no reduction" in refused(product, "UNROLL", i, 2)
        assert "of this kind stands" in refused(apply(product, Opt("VECTOR", j, 4)), "VECTOR", k, 4)
        assert "is taken" in refused(apply(product, Opt("PARALLEL", i)), "JAM", i, 2)
        assert "of this kind stands" in refused(apply(product, Opt("PARALLEL", i)), "PARALLEL", j)


def test_scatter_stays_in_order():
    with workspace():
        root = next(s for s in sinks(Tensor.zeros(3, 13).scatter_add(0, index(), Tensor(A[:5]))) if 5 in map(size, loops_of(s).values()))
        r = loop_of(root, 5)
        for opt in (("VECTOR", r, 4), ("JAM", r, 2), ("PARALLEL", r)): assert "write one element" in refused(root, *opt)
        assert objection(root, Opt("VECTOR", loop_of(root, 13), 8)) is None


def test_threads_do_not_wait():
    "A row is stored and then summed: its own loop stays on one thread, the rows need not."
    with workspace():
        e = Tensor(values(8, 64)).exp()
        root, = sinks(e, e.sum(1))
        rows, columns = max((around for _, around in stores_in(root)), key=len)
        assert "read again" in refused(root, "PARALLEL", columns.arg[0])
        assert objection(root, Opt("PARALLEL", rows.arg[0])) is None


def test_one_thread_does_the_rest():
    "In place, what is left of a loop that threads share out is done once."
    x = Tensor(values(20_001))

    @jit
    def step(): return x.assign(x + 1)
    for _ in range(4): step()
    np.testing.assert_allclose(x.numpy(), values(20_001) + 4, rtol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("lanes, threads", ((1, 1), (4, 2), (8, 64), (16, 3)))
def test_default_schedule(name, lanes, threads):
    "Every decision of the default schedule is legal or left out; what comes out is well formed."
    limits = C.limits | dict(lanes=lanes, threads=threads)
    with workspace():
        for root in sinks(*group(KERNELS[name])[0]):
            legal_loops(place(expand(schedule(root, limits), limits)))
            for opt in tiles(merge_loops(root), limits) + thread_opts(root, limits):
                assert opt.kind in KINDS and opt.amount <= max(map(size, loops_of(root).values())) ** 2


DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
RESULTS = {     # on two tensors of one dtype
    "sum":      lambda x, y: x + y,
    "product":  lambda x, y: x * y,
    "largest":  lambda x, y: x.maximum(y),
    "less":     lambda x, y: x < y,
    "at most":  lambda x, y: x <= y,
    "equal":    lambda x, y: x.eq(y),
    "choice":   lambda x, y: (x < y).where(x, y),
    "clipped":  lambda x, y: x.maximum(1),
    "float":    lambda x, y: x.cast("float32"),
    "double":   lambda x, y: x.cast("float64"),
    "int":      lambda x, y: x.cast("int32"),
    "byte":     lambda x, y: x.cast("uint8"),
    "truth":    lambda x, y: x.cast("bool"),
    "total":    lambda x, y: x.sum(),
    "most":     lambda x, y: x.max(),
    "guarded":  lambda x, y: x.pad(((3, 2),)) + 1,
    "turned":   lambda x, y: x.flip(0),
}
WHOLE = {"quotient": lambda x, y: x // y, "rest": lambda x, y: x % y, "left": lambda x, y: x << 3, "right": lambda x, y: x >> 2,
         "both": lambda x, y: x & y, "either": lambda x, y: x | y, "by each": lambda x, y: x << (y & 7)}
BROKEN = {"root": lambda x, y: x.sqrt(), "power": lambda x, y: x.exp2(), "log": lambda x, y: x.log2(), "sine": lambda x, y: x.sin(),
          "ratio": lambda x, y: x / y, "cut": lambda x, y: x.trunc()}


def operands(dtype):
    numbers = np.array([0, 1, 2, 3, 7, 100, 5, 1, 0, 9, 4, 4, 6, 120, 2, 3, 1, 8, 11, 2, 3], "float64")
    other = np.roll(numbers, 4)
    if dtype[:3] in ("int", "flo", "bfl"): numbers[::3] *= -1
    if dtype.startswith(("float", "bf")): numbers[2], numbers[5], numbers[16] = np.nan, np.inf, 0.5
    return Tensor(numbers).cast(dtype).contiguous(), Tensor(other).cast(dtype).contiguous()


def shown(t, dtype):
    "The numbers; of a bool its byte in memory, which must be 0 or 1."
    if t.dtype.is_bool: return t.numpy().view("uint8")
    return t.cast("float64").numpy() if "float" in dtype else t.numpy()


@pytest.mark.parametrize("dtype", DTYPES)
def test_lanes_against_the_scalar_loop(dtype):
    table = RESULTS | (WHOLE if "int" in dtype else {}) | (BROKEN if "float" in dtype else {})
    if dtype == "bool": del table["clipped"]

    def run():
        x, y = operands(dtype)
        made = {name: f(x, y) for name, f in table.items()}
        first, *rest = made.values()
        first.realize(*rest)
        return {name: shown(t, dtype) for name, t in made.items()}
    scalar = under([], run)
    assert all(v.max() <= 1 for name, v in scalar.items() if name in ("less", "at most", "equal", "truth"))
    for lanes in (2, 8, 16):
        wide = under([("VECTOR", 0, lanes), ("VECTOR", 1, lanes), ("VECTOR", 2, lanes), ("VECTOR", 3, lanes)], run)
        for name in table: np.testing.assert_allclose(wide[name], scalar[name], rtol=2e-2 if "16" in dtype else 1e-6, err_msg=name)


@pytest.mark.parametrize("shape", [(7,), (16,), (1000,), (32, 16), (3, 5, 7)])
def test_a_reduction_of_a_constant_beside_one_in_lanes(shape):
    "A number that does not change from lane to lane is in each of them."
    x = Tensor.ones(*shape, device="c").contiguous().realize()
    n, whole = x.numel, Tensor.full(shape, 3, dtype="int32", device="c")
    assert (whole.sum() + x.int().sum()).item() == 4 * n and (whole.max() + x.int().max()).item() == 4
    np.testing.assert_allclose((Tensor.full(shape, 0.1, device="c").sum() + x.sum()).item(), 1.1 * n, rtol=1e-5)


@pytest.mark.parametrize("kind", ("VECTOR", "JAM"))
def test_lanes_do_not_share_a_row(kind):
    "What follows a loop of lanes or copies is not kept in one row for all of them."
    with workspace():
        root = numerics(*sinks(Tensor(values(16, 64)).softmax(1)), C.limits)
        reuses = [("REUSE", r, q) for r in loops_of(root) for q in loops_of(root)]
        legal = [opt for opt in reuses if not objection(root, Opt(*opt))]
        assert legal
        wide = apply(root, Opt(kind, loop_of(root, 16), 8))
        for opt in legal: refused(wide, *opt)
