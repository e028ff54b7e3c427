"The benchmark measures what it says: the libraries agree, and a row of the table comes out."
import sys
from pathlib import Path
import pytest

np = pytest.importorskip("numpy")
BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch):
    "The modules of bench/, as the driver and its workers import them."
    monkeypatch.syspath_prepend(str(BENCH))
    import peers.numpy
    import peers.tinylit
    import run
    import worker
    import workloads
    yield sys.modules
    for name in ("run", "worker", "workloads"): del sys.modules[name]


@pytest.mark.parametrize("name", ["chain", "gelu", "softmax", "sum", "max", "argmax", "layer_norm", "matmul"])
def test_libraries_agree(bench, name):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((6, 10), np.float32)]
    runs = {"chain": bench["workloads"].chain, "sum": lambda F, x: F.sum(x, 0), "max": lambda F, x: F.max(x, 1),
            "argmax": lambda F, x: F.argmax(x, 1), "layer_norm": lambda F, x: F.layer_norm(x, x[0], x[1]),
            "matmul": lambda F, x: x @ x.T}
    run = runs.get(name, lambda F, x: getattr(F, name)(x))
    ours, theirs = (bench[f"peers.{p}"].forward(run, arrays)() for p in ("tinylit", "numpy"))
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-5)


def test_gradients_come_with_the_result(bench):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    both = bench["peers.tinylit"].backward(lambda F, x, w: x * w, [a, a + 1], (0, 1), np.ones_like(a))
    y, gx, gw = (t.numpy() for t in both())
    assert (y == a * (a + 1)).all() and (gx == a + 1).all() and (gw == a).all()


def test_training_steps_learn(bench):
    w = bench["workloads"].BY_NAME["MLP step"]
    step = bench["peers.tinylit"].training(w.run, w.parameters(), w.arrays()[0], w.targets())
    losses = [step() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_a_row_of_the_table(bench):
    run, w = bench["run"], bench["workloads"].BY_NAME["matmul 256"]
    peers = [run.Peer(m, 1) for m in ("tinylit", "numpy")]
    result = run.measure(w, peers, rounds=1)
    for p in peers: p.end()
    assert result["tinylit"]["median"] >= result["tinylit"]["least"] > 0
    assert result["tinylit"]["agrees"] and result["numpy"]["agrees"]
    row = run.line(w, result, ["numpy"], {"gflops": 100.0, "gbytes": 10.0})
    assert row.startswith("matmul 256 ") and "GFLOP/s" in row
    assert run.summary({w.name: result}, ["numpy"])[0].startswith("tinylit / numpy: ")


def test_a_peer_that_cannot_start_is_named(bench):
    peer = bench["run"].Peer("nobody", 1)
    assert peer.version is None and "nobody" in str(peer.answer())
    peer.end()


def test_disagreement_is_seen(bench):
    agrees, w = bench["run"].agrees, bench["workloads"].BY_NAME["matmul 256"]
    assert agrees(w, [[1.0, 2.0]], [[1.0, 2.000001]]) and not agrees(w, [[1.0, 2.0]], [[1.0, 2.1]])
    assert not agrees(w, [[float("nan")]], [[1.0]])
