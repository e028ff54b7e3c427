"The benchmark measures what it says: the libraries agree, and a row of the table comes out."
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
import pytest
from conftest import NAMES as DEVICES

np = pytest.importorskip("numpy")
KINDS = {"forward": 20, "backward": 3, "training": 3, "inference": 1}      # how many workloads of each; GPT-2 has tests of its own
BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch):
    "The modules of bench/, as the driver and its workers import them."
    monkeypatch.syspath_prepend(str(BENCH))
    import first
    import networks
    import peers.numpy
    import peers.tinylit
    import run
    import targets
    import worker
    import workloads
    yield sys.modules
    for name in ("first", "networks", "run", "targets", "worker", "workloads"): del sys.modules[name]


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


def small(w):
    "The same work on less: long axes are 16 times shorter, images smaller, batches tiny."
    if w.kind == "inference": return replace(w, shapes=[(1, 3, 32, 32)])
    if w.kind == "training": return replace(w, shapes=[(2, *w.shapes[0][1:])], whole=(2,))
    return replace(w, shapes=[tuple(n if n <= 8 else n // 16 for n in s) for s in w.shapes])


@pytest.mark.parametrize("name", [f"{kind} {i}" for kind, n in KINDS.items() for i in range(n)])
def test_rows_are_what_the_numpy_device_gives(bench, monkeypatch, name):
    kind, i = name.split()
    w = small([w for w in bench["workloads"].WORKLOADS if w.kind == kind][int(i)])
    found = []
    for device in DEVICES:
        monkeypatch.setenv("TINYLIT_DEVICE", device)
        call = bench["worker"].build(bench["peers.tinylit"], w)
        found.append(bench["worker"].sample([call(), call()] if kind == "training" else call()))
    assert all(bench["run"].agrees(w, found[0], other) for other in found[1:])


def test_gradients_come_with_the_result(bench):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    both = bench["peers.tinylit"].backward(lambda F, x, w: x * w, [a, a + 1], (0, 1), np.ones_like(a))
    y, gx, gw = (t.numpy() for t in both())
    assert (y == a * (a + 1)).all() and (gx == a + 1).all() and (gw == a).all()


def test_training_steps_learn(bench):
    w = bench["workloads"].BY_NAME["MLP step"]
    step = bench["worker"].build(bench["peers.tinylit"], w)
    losses = [step() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_a_row_of_the_table(bench, tmp_path):
    run, w = bench["run"], bench["workloads"].BY_NAME["matmul 256"]
    peers = [run.Peer(m, 1) for m in ("tinylit", "numpy")]
    result = run.measure(w, peers, rounds=1)
    for p in peers: p.end()
    assert result["tinylit"]["median"] >= result["tinylit"]["least"] > 0
    assert result["tinylit"]["agrees"] and result["numpy"]["agrees"]
    row = run.line(w, result, ["numpy"], {"gflops": 100.0, "gbytes": 10.0})
    assert row.startswith("matmul 256 ") and "GFLOP/s" in row
    assert len(run.title(["numpy"])) == len(row)
    assert run.summary({w.name: result}, ["numpy"])[0].startswith("tinylit / numpy: ")
    run.draw({w.name: result}, ["numpy"], {"gflops": 100.0, "gbytes": 10.0}, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_a_peer_that_cannot_start_is_named(bench):
    peer = bench["run"].Peer("nobody", 1)
    assert peer.version is None and "nobody" in str(peer.answer())
    peer.end()


def test_disagreement_is_seen(bench):
    agrees, w = bench["run"].agrees, bench["workloads"].BY_NAME["matmul 256"]
    assert agrees(w, [[1.0, 2.0]], [[1.0, 2.000001]]) and not agrees(w, [[1.0, 2.0]], [[1.0, 2.1]])
    assert not agrees(w, [[float("nan")]], [[1.0]])
    assert bench["run"].odd_ones(w, {"a": [[1.0]], "b": [[2.0]], "c": [[1.0]]}) == ["b"]


def test_a_library_that_fails_while_it_runs_is_left_out(bench):
    class Dying:
        name = "dying"
        def ask(self, **request): return {"first": 1.0, "warm": [0.1], "sample": [[1.0]]} if "build" in request else {"failed": "gone"}
    w = bench["workloads"].BY_NAME["matmul 256"]
    assert bench["run"].measure(w, [Dying()], rounds=3) == {"dying": {"failed": "gone"}}


def test_the_networks_have_the_weights_of_their_names(bench):
    count = {name: sum(map(math.prod, getattr(bench["networks"], name))) for name in ("RESNET18", "GPT2")}
    assert count == {"RESNET18": 11_689_512 + 2 * 4_800, "GPT2": 124_439_808}          # and the statistics of 4,800 channels


@pytest.fixture
def small_gpt(bench, monkeypatch):
    "Weights of a GPT-2 of two layers of two heads, and five tokens."
    for name, value in dict(LAYERS=2, HEADS=2, WIDTH=8, PROMPT=5).items(): monkeypatch.setattr(bench["networks"], name, value)
    sizes = {768: 8, 2304: 24, 3072: 32, 50257: 11, 1024: 6}
    shapes = bench["networks"].GPT2
    shapes = [tuple(sizes.get(n, n) for n in s) for s in shapes[:2 + 2 * 12] + shapes[-2:]]
    w = bench["workloads"].Workload("small", bench["networks"].prefill, [], kind="inference", weights=shapes, whole=(1, 5), below=11)
    return w.parameters(), w.arrays()[0]


def test_gpt_is_the_same_network_in_two_libraries(bench, small_gpt):
    p, tokens = small_gpt
    ours, theirs = (bench[f"peers.{n}"].inference(bench["networks"].prefill, p, tokens)() for n in ("tinylit", "numpy"))
    assert theirs.shape == (1, 11) and np.abs(theirs).max() > 0.1
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("peer", ["tinylit", "numpy"])
def test_gpt_that_reads_token_by_token_says_the_same(bench, small_gpt, peer):
    p, tokens = small_gpt
    cache = [tuple(np.full((1, 2, 8, 4), 1e3, np.float32) for _ in range(2)) for _ in range(2)]    # written over before it is read
    def last(name, i): return bench[f"peers.{name}"].decoding(bench["networks"].decode, p, tokens[:, i:i + 1], i, cache)()
    for i in range(4): last("numpy", i)
    whole = bench["peers.numpy"].inference(bench["networks"].prefill, p, tokens)()
    np.testing.assert_allclose(bench["worker"].as_array(last(peer, 4)), whole, rtol=1e-4, atol=1e-5)


def test_resnet_takes_every_weight(bench):
    w = bench["workloads"].BY_NAME["ResNet-18 224x224"]
    taken, x = [], np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    def noting(F, p, x): return w.run(F, (taken.append(i) or v for i, v in enumerate(p)), x)
    y = bench["peers.tinylit"].inference(noting, w.parameters(), x)().numpy()
    assert taken == list(range(len(w.weights))) and y.shape == (1, 1000) and 0.1 < y.std() < 10


def test_every_target_names_what_is_measured(bench):
    t, names = bench["targets"], bench["workloads"].BY_NAME
    assert Counter(w.kind for w in names.values()) == KINDS | {"inference": 2, "decoding": 1}
    assert not {*t.RATIOS, *t.SHARES} - set(names) and not set(t.MEANS) - {"best", *bench["run"].PEERS}


def test_figures_of_targets(bench):
    t = bench["targets"]
    def both(x): return {"median": x, "least": x / 2}
    results = {"matmul 512": {"tinylit": both(2.0), "torch": both(4.0), "numpy": {"median": 2.0, "least": 0.25}},
               "MLP step": {"tinylit": both(1.0), "torch": both(0.5), "numpy": {"missing": "gradients"}}}
    assert t.ratios(results, "torch") == {"matmul 512": 0.5, "MLP step": 2.0} and t.ratios(results, "best")["matmul 512"] == 1
    assert t.ratio(results["matmul 512"], "best", "least") == 4
    values = t.figures(results, {"matmul 512": 0.95})
    assert {what: (round(v, 6), t.met(what, v)) for what, v in values.items()} == {
        "best, mean of 2": (round(2**0.5, 6), False), "torch, mean of 2": (1, False), "worst row": (2, False),
        "MLP step / best": (2, False), "matmul 512, of the peak": (0.95, True)}
    assert [line.split()[-1] for line in t.lines(values, values)] == ["least", "missed", "missed", "missed", "missed", "met"]
    assert t.figures({"MLP step": {"tinylit": {"failed": "no"}}}, {}) == {}


def test_first_results_are_measured_and_judged(bench, tmp_path):
    first = bench["first"]
    answers = {part: [first.once(part, str(tmp_path))] for part in ("import", "chain 1000", "replay", "memory")}
    answers |= {part: answers["chain 1000"] for part in first.PLAIN if part.startswith(("chain", "network"))}
    answers["replay on threads"] = answers["replay"]
    (matmul,) = answers["cold: 64x64 matmul"] = [first.once("matmul", str(tmp_path))]
    assert answers["import"][0]["seconds"] < matmul["seconds"] and matmul["bytes"] == 4 * 64 * 64
    assert answers["chain 1000"][0]["nodes"] > 900 and answers["replay"][0]["own"] > 0
    assert 1 <= answers["memory"][0]["ratio"] < 2
    for name in ("warm: 64x64 matmul", *(f"{s}: {n} step" for s in ("cold", "warm") for n in ("MLP", "CNN"))):
        answers[name] = [dict(matmul, step=0.0)]
    rows = first.figures(answers)
    assert set(bench["targets"].FIRST) <= set(rows)
    assert first.line("import tinylit, ms", [30.0, 10.0, 20.0]).split()[-5:] == ["20.000", "10.000", "wanted", "80", "met"]
