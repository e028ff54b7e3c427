"Exponentials, logarithms, sines and half floats, bit by bit."
import math

import pytest

from tinylit import Tensor
from tinylit.ops.series import interpolate

np = pytest.importorskip("numpy")
rng = np.random.default_rng(0)
HALVES = ("float16", "bfloat16")
EDGES = np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, 0.5, 1e-45, -1e-45, 1.1754942e-38, 1.17549435e-38,
                  3.4028235e38, -3.4028235e38, 127.99999, 128.0, -126.0, -148.5, -149.0, -149.5, -150.0, -151.0], "f")
PATTERNS = np.concatenate([EDGES, rng.integers(0, 1 << 32, 200_000, np.uint32).view("f")])
NEAR = {"exp2": rng.uniform(-152, 130, 200_000), "log2": np.exp2(rng.uniform(-150, 128, 100_000)),
        "sin": rng.uniform(-1000, 1000, 100_000), "around 1": rng.uniform(0.5, 2, 100_000)}
MOST = {"exp2": 1.0, "log2": 1.0, "sin": 0.51}      # units in the last place


def ulps(name, x, device):
    "The largest error of a function at `x`, in units in the last place of the float32 answer; the rest must be equal."
    with np.errstate(all="ignore"): exact = getattr(np, name)(x.astype("d"))
    with np.errstate(over="ignore"): right = exact.astype("f")
    got = getattr(Tensor(x, device=device), name)().numpy()
    finite = np.isfinite(right)
    assert np.array_equal(got[~finite], right[~finite], equal_nan=True)
    return np.max(np.abs(got[finite] - exact[finite]) / np.spacing(np.abs(right[finite])).astype("d"))


@pytest.mark.parametrize("name", MOST)
def test_within_an_ulp(name, device):
    x = np.concatenate([PATTERNS, *(v.astype("f") for v in NEAR.values())])
    if name == "sin": x = x[~(np.abs(x) > 2.0**30) | np.isinf(x)]
    assert ulps(name, x, device) <= (MOST[name] if device == "c" else 3.0)


def test_a_sine_of_anything_stays_in_its_place(device):
    x = PATTERNS[np.isfinite(PATTERNS)]
    assert np.all(np.abs(Tensor(x, device=device).sin().numpy()) <= 1)


@pytest.mark.parametrize("lanes", (1, 8))
def test_lanes_change_no_bit(lanes, monkeypatch):
    pytest.importorskip("tinylit.compiler.expand")
    from tinylit.backend import c
    from tinylit.backend.device import Unavailable
    try: wide = c.C()
    except Unavailable: pytest.skip("no compiler")
    narrow = c.C()
    narrow.name, narrow.limits = f"c with {lanes} lanes", {**narrow.limits, "lanes": lanes}
    for name in MOST:
        a, b = (getattr(Tensor(PATTERNS[:5000], device=d), name)().numpy() for d in (wide, narrow))
        assert np.array_equal(a.view("u4"), b.view("u4")) or np.allclose(a, b, rtol=3e-7, equal_nan=True)


def test_exp_of_what_softmax_sees(device):
    x = np.concatenate([rng.uniform(-20, 0, 50_000), [0.0, -87.0, -104.0, -math.inf]]).astype("f")
    assert np.allclose(Tensor(x, device=device).exp().numpy(), np.exp(x.astype("d")), rtol=3e-6, atol=1e-45)


def test_float64_is_float64(device):
    x = rng.uniform(0.1, 5, 1000)
    for name in MOST:
        assert np.allclose(getattr(Tensor(x, device=device), name)().numpy(), getattr(np, name)(x), rtol=1e-14)


def halves(d):
    "Every half float there is, as float32."
    bits = np.arange(1 << 16, dtype="u2")
    if d == "float16": return bits.view("f2").astype("f")
    return (bits.astype("u4") << 16).view("f")


def between(d):
    "Float32 numbers halfway between neighbouring half floats, and their own neighbours: where rounding is decided."
    x = np.sort(halves(d)[np.isfinite(halves(d))])
    middle = ((x[1:].astype("d") + x[:-1]) / 2).astype("f")
    return np.concatenate([np.nextafter(middle, np.float32(s)) for s in (math.inf, -math.inf)] + [middle, x, PATTERNS])


def same(a, b): return np.array_equal(a, b, equal_nan=True)


@pytest.mark.parametrize("d", HALVES)
def test_every_half_float_widens(d, device):
    assert same(Tensor(halves(d), device=device).cast(d).float().numpy(), halves(d))


@pytest.mark.parametrize("d", HALVES)
def test_every_rounding(d, device):
    x = between(d)
    got = Tensor(x, device=device).cast(d).float().numpy()
    with np.errstate(over="ignore"):
        if d == "float16": right = x.astype("f2").astype("f")
        else:
            bits = x.view("u4").astype("u8")
            right = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("u4").view("f")
    assert same(got, np.where(np.isnan(x), np.float32(math.nan), right))


def test_float64_to_float16_rounds_once(device):
    x = between("float16")[:100_000].astype("d") * (1 + 2.0**-40)
    with np.errstate(over="ignore"): right = x.astype("f2")
    assert same(Tensor(x, device=device).cast("float16").numpy(), right)


@pytest.mark.parametrize("d", HALVES)
@pytest.mark.parametrize("other", ("bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "float64"))
def test_casts_meet_the_numpy_device(d, other, device):
    x = halves(d)
    out = [Tensor(x, device=v).cast(d).cast(other).numpy() for v in (device, "numpy")]
    assert same(*out)
    whole = np.concatenate([rng.integers(-70000, 70000, 5000), [0, 1, 2049, 65519, 65520, 1 << 24]])
    if other in ("uint8", "uint32", "bool"): whole = np.abs(whole)
    out = [Tensor(whole.astype(other), device=v).cast(d).float().numpy() for v in (device, "numpy")]
    assert same(*out)


OPERATIONS = {"mul": lambda x, y: x * y, "add": lambda x, y: x + y, "div": lambda x, y: x / y, "less": lambda x, y: x < y,
              "where": lambda x, y: (x < y).where(x, y), "neg": lambda x, y: -x, "max": lambda x, y: x.maximum(y),
              "mad": lambda x, y: x * y + x, "sqrt": lambda x, y: x.sqrt(), "trunc": lambda x, y: x.trunc(), "exp": lambda x, y: x.exp(),
              "sum": lambda x, y: x.sum(), "row max": lambda x, y: x.reshape(256, 256).max(1), "scaled": lambda x, y: x * 1.1}


@pytest.mark.parametrize("d", HALVES)
@pytest.mark.parametrize("f", OPERATIONS.values(), ids=OPERATIONS)
def test_operations_meet_the_numpy_device(d, f, device):
    x = halves(d)
    y = rng.permutation(x)
    x, y = np.where(np.isnan(x), 1, x), np.where(np.isnan(y), 1, y)
    if f in (OPERATIONS["sum"],): x, y = np.clip(x, -1, 1), np.clip(y, -1, 1)
    def run(v): return f(*(Tensor(a, device=v).cast(d) for a in (x, y)))
    with np.errstate(all="ignore"): a, b = run(device), run("numpy")
    assert a.dtype is b.dtype
    a, b = (t.float().numpy() if t.dtype.is_float else t.numpy() for t in (a, b))
    if f in (OPERATIONS["exp"], OPERATIONS["sum"]): assert np.allclose(a, b, rtol=2.0**-7, atol=0.1, equal_nan=True)
    else: assert same(a, b)


@pytest.mark.parametrize("d", HALVES)
def test_bits_of_half_floats(d, device):
    bits = np.arange(1 << 16, dtype="u2")
    number = np.isfinite(halves(d))
    back = Tensor(bits, device=device).bitcast(d).bitcast("uint16").numpy()
    assert same(back[number], bits[number])
    assert same(Tensor(bits, device=device).bitcast(d).float().numpy(), halves(d))


def test_the_largest_and_the_mean(device):
    assert Tensor([65536.0], device=device).cast("float16").tolist() == [math.inf]
    assert Tensor([60000.0] * 4, dtype="float16", device=device).mean().item() == 60000


@pytest.mark.parametrize("degree", range(1, 8))
def test_a_polynomial_is_found_exactly(degree):
    wanted = [(-1.0) ** k / (k + 1) for k in range(degree + 1)]
    got = interpolate(lambda x: sum(c * x**k for k, c in enumerate(wanted)), degree, -1.0, 2.0)
    assert got == pytest.approx(wanted, abs=1e-9)
