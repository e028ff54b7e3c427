"Search: every form that it tries gives the same numbers; what it finds is kept, and nothing kept is trusted blindly."
import ctypes
import json
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest
from test_schedule import KERNELS, adam_in_numpy, group, values

from tinylit import Tensor, jit
from tinylit.backend.c import intact, keep
from tinylit.backend.device import Unavailable, device
from tinylit.clock import Clock, arguments, reach
from tinylit.compiler import realize, search
from tinylit.compiler.fuse import fuse
from tinylit.compiler.numerics import numerics
from tinylit.compiler.place import legal_loops, place
from tinylit.compiler.expand import expand
from tinylit.compiler.schedule import CHANGES, OBJECTIONS, Opt, apply, loops_of, merge_loops, objection, schedule
from tinylit.graph.algebra import size
from tinylit.graph.node import workspace
from tinylit.nn.optim import Adam

try: C = device("c")
except Unavailable: pytest.skip("no C compiler", allow_module_level=True)


@pytest.fixture(autouse=True)
def on_c(monkeypatch, tmp_path):
    "The C device, an empty cache, nothing scheduled before."
    monkeypatch.setenv("TINYLIT_DEVICE", "c")
    monkeypatch.setenv("TINYLIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TINYLIT_SEARCH", raising=False)
    realize.schedule_of.cache_clear()
    yield
    realize.schedule_of.cache_clear()


def kept(tmp_path): return sorted((tmp_path / "cache").glob("*.opts"))


def product(n=12, m=20, k=16):
    "The kernel of a matrix product."
    a, b = Tensor(values(n, k)), Tensor(values(k, m, seed=1))
    return merge_loops(fuse(realize.canonical([(a @ b).node]), C.limits)[0][-1].sink)


def numbers(root, *sizes):
    "The numbers of the loops of these sizes."
    return [next(number for number, r in loops_of(root).items() if size(r) == n) for n in sizes]


def paper(roots, end=0):
    "A clock that runs nothing: it reads the cost model."
    return [search.predicted(root, C.limits) for root in roots]


# --- moves

def test_moves_are_all_that_is_legal():
    with workspace():
        root = product()
        found = search.moves(root)
        assert len(found) == len(set(found)) > 10
        for kind in CHANGES:
            for r in loops_of(root):
                for n in search.AMOUNTS.get(kind, (1,)):
                    assert (Opt(kind, r, n) in found) == (objection(root, Opt(kind, r, n)) is None)


def test_a_new_kind_of_decision_is_a_move(monkeypatch):
    monkeypatch.setitem(CHANGES, "SWIRL", lambda root, r, n, kind: root)
    monkeypatch.setitem(OBJECTIONS, "it swirls already", ("SWIRL", lambda root, r, o: size(r) != 20))
    with workspace():
        root = product()
        swirls = [o for o in search.moves(root) if o.kind == "SWIRL"]
        assert [(size(loops_of(root)[o.axis]), o.amount) for o in swirls] == [(20, 1)]


def test_the_order_of_decisions_does_not_matter():
    with workspace():
        root = product()
        i, j = numbers(root, 12, 20)
        one, two = Opt("JAM", i, 2), Opt("VECTOR", j, 4)
        ab, ba = (search.follow(root, path, C.limits) for path in ([one, two], [two, one]))
        assert ab is not ba and search.renumbered(ab) is search.renumbered(ba)
        same_loop = [search.follow(root, path, C.limits) for path in ([Opt("JAM", j, 2), two], [two, Opt("JAM", j, 2)])]
        assert len(set(map(search.renumbered, same_loop))) == 2


def test_what_is_too_long_is_not_tried():
    with workspace():
        root = product(64, 48, 32)
        i, j = numbers(root, 64, 48)
        assert search.predicted(root, C.limits) < float("inf")
        long = search.follow(root, [Opt("JAM", i, 16), Opt("JAM", j, 16)], C.limits)
        assert search.predicted(long, C.limits) == float("inf")


def rowwise(x): return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()


MADE = {     # kernels that lend themselves to copies, rows in scratch memory, and accumulators in memory
    "attention": lambda: ((Tensor(values(3, 17, 8)) @ Tensor(values(3, 17, 8, seed=1)).transpose(1, 2)).softmax(-1) @ Tensor(values(3, 17, 8, seed=2))),
    "softmax of columns": lambda: Tensor(values(33, 9)).softmax(0),
    "layer norm": lambda: rowwise(Tensor(values(9, 33))),
    "product": lambda: Tensor(values(40, 70)) @ Tensor(values(70, 36, seed=1)),
    "convolution": lambda: Tensor(values(2, 3, 9, 9)).conv2d(Tensor(values(4, 3, 3, 3, seed=1)), padding=1)}


@pytest.mark.parametrize("name", MADE)
def test_wherever_moves_lead_the_loops_are_legal(name):
    rng = random.Random(0)
    with workspace():
        for k in fuse(realize.canonical([MADE[name]().node]), C.limits)[0]:
            plain = merge_loops(numerics(k.sink, C.limits))
            for start in (plain, schedule(plain, C.limits)) * 4:
                root = start
                for _ in range(5):
                    found = search.moves(root)
                    forms = [apply(root, o) for o in rng.sample(found, min(4, len(found)))]
                    for form in forms: legal_loops(place(form))
                    root = rng.choice([f for f in forms if search.predicted(f, C.limits) < float("inf")] or [root])


def test_accumulators_after_copies():
    "A copy that serves all terms of a sum stands before its loop, which cannot move outside of it."
    with workspace():
        for root in (product(12, 20, 16), *(merge_loops(k.sink) for k in fuse(realize.canonical([MADE["attention"]().node]), C.limits)[0])):
            def of(root, *kinds): return [apply(root, o) for o in search.moves(root) if o.kind in kinds]
            for copied in of(root, "STAGE"):
                for form in of(copied, "UNROLL", "JAM"):
                    for form in (copied, form):
                        for last in of(form, "ACCUMULATE"): legal_loops(place(last))


# --- results

def found_by_chance(seed):
    "A stage that looks around with a clock of random numbers, and takes a form at random."
    rng = random.Random(seed)

    def stage(root, limits):
        root, forms = merge_loops(root), {}
        for path in ((None,), ()):
            kernel = search.follow(root, path, limits)
            forms.setdefault(search.renumbered(kernel), (path, kernel))
            tried, end = [], time.perf_counter() + 0.3

            def clock(roots, end):
                tried.extend(roots)
                return [rng.random() for _ in roots]
            search.beam(search.renumbered(kernel), forms, limits, 2, clock, end)
        path, kernel = rng.choice([f for f in forms.values() if search.predicted(f[1], limits) < float("inf")])
        legal_loops(place(expand(kernel, limits)))
        return kernel
    return stage


@pytest.mark.parametrize("name", KERNELS)
def test_any_form_gives_the_same_numbers(name, monkeypatch):
    for seed in range(3):
        monkeypatch.setitem(realize.stages, "schedule", found_by_chance(seed))
        realize.schedule_of.cache_clear()
        tensors, wanted = group(KERNELS[name])
        tensors[0].realize(*tensors[1:])
        for t, w in zip(tensors, wanted): np.testing.assert_allclose(t.numpy(), w, rtol=1e-4, atol=1e-5)


def test_any_form_of_a_convolution(monkeypatch):
    x, w = values(2, 3, 9, 9), values(4, 3, 3, 3, seed=1)
    wanted = Tensor(x, device="numpy").conv2d(Tensor(w, device="numpy"), padding=1).numpy()
    for seed in range(4):
        monkeypatch.setitem(realize.stages, "schedule", found_by_chance(seed))
        realize.schedule_of.cache_clear()
        np.testing.assert_allclose(Tensor(x).conv2d(Tensor(w), padding=1).numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["product", "softmax", "scattered", "gathered", "padded", "group", "a scalar"])
def test_searched_kernels_give_the_same_numbers(name, monkeypatch):
    monkeypatch.setattr(search, "QUICK", 0)
    monkeypatch.setattr(search, "KERNEL", 0.5)
    monkeypatch.setenv("TINYLIT_SEARCH", "1")
    tensors, wanted = group(KERNELS[name])
    tensors[0].realize(*tensors[1:])
    for t, w in zip(tensors, wanted): np.testing.assert_allclose(t.numpy(), w, rtol=1e-4, atol=1e-5)


def test_steps_in_place_are_taken_once(monkeypatch, tmp_path):
    "Candidates run many times, but in memory of their own."
    monkeypatch.setattr(search, "QUICK", 0)
    monkeypatch.setattr(search, "KERNEL", 0.5)
    monkeypatch.setenv("TINYLIT_SEARCH", "1")
    x, g = values(40, seed=4), values(40, seed=5)
    p = Tensor(x, requires_grad=True)
    optimizer, factor = Adam([p], lr=0.01), Tensor(g)

    @jit
    def step():
        optimizer.zero_grad()
        (p * factor).sum().backward()
        optimizer.step()
        return p
    for _ in range(4): step()
    np.testing.assert_allclose(p.numpy(), adam_in_numpy(x, g, 4), rtol=1e-4, atol=1e-6)
    assert kept(tmp_path)


# --- the clock

def test_the_clock_has_memory_enough():
    with workspace():
        root = product(12, 20, 16)
        assert [reach(n) for n in arguments(root).values()] == sorted([12 * 16, 16 * 20, 12 * 20], key=[12 * 16, 16 * 20, 12 * 20].index)
        clock = Clock(root, C)
        assert [b.size for b in clock.room] == [reach(n) for n in arguments(root).values()]
        plain, default = clock([root, schedule(root, C.limits)])
        assert 0 < plain < 1 and 0 < default < 1


def test_the_clock_tells_slow_from_fast():
    with workspace():
        root = product(256, 256, 256)
        plain, default = Clock(root, C)([root, schedule(root, C.limits)])
        assert default < plain / 2


def test_the_clock_stops():
    with workspace():
        root = product()
        assert Clock(root, C)([root, root], end=time.perf_counter()) == [float("inf")] * 2


def test_variables_have_a_place(monkeypatch):
    "An integer that a kernel takes is an argument of its forms, too."
    from tinylit.backend.device import Var
    from tinylit.graph.dtype import dtypes
    v = Var("v", 0, 9, 3)
    x = Tensor(values(50))
    monkeypatch.setattr(search, "QUICK", 0)
    monkeypatch.setattr(search, "KERNEL", 0.3)
    monkeypatch.setenv("TINYLIT_SEARCH", "1")
    np.testing.assert_allclose(device("c").run([x.node * v.node(dtypes.float32)])[0].data().cast("f").tolist(), values(50) * 3, rtol=1e-6)


# --- the beam

def timed_by(table, default=1.0):
    "A clock: the seconds of kernels by the kinds of their loops."
    def clock(roots, end=0):
        def kinds(root): return tuple(sorted(r.arg[2] for r in loops_of(root).values()))
        return [table(kinds(root)) for root in roots]
    return clock


def test_the_fastest_wins():
    with workspace():
        root = product(64, 64, 64)
        path, kernel = search.fastest(root, C.limits, 2, timed_by(lambda kinds: 1 / (1 + kinds.count("UNROLL"))), 5)
        assert sum(r.arg[2] == "UNROLL" for r in loops_of(kernel).values()) >= 2
        assert search.follow(root, path, C.limits) is kernel


def test_a_wider_beam_finds_at_least_as_much():
    with workspace():
        root = product(64, 64, 64)
        costs = [paper([search.fastest(root, C.limits, width, paper, 20)[1]])[0] for width in (1, 4)]
        assert costs[1] <= costs[0] <= paper([schedule(root, C.limits)])[0]


@pytest.mark.parametrize("better", [0.98, 1.0, 1.5])
def test_the_default_stays_unless_clearly_beaten(better):
    with workspace():
        root = product(64, 64, 64)
        default = search.renumbered(schedule(root, C.limits))
        def clock(roots, end=0): return [1.0 if search.renumbered(r) is default else better for r in roots]
        assert search.fastest(root, C.limits, 2, clock, 1)[0] == (None,)


def test_a_lucky_run_is_not_enough():
    "What was fast once must be fast again."
    with workspace():
        root = product(64, 64, 64)
        default, seen = search.renumbered(schedule(root, C.limits)), set()

        def clock(roots, end=0):
            forms = [search.renumbered(r) for r in roots]
            out = [1.0 if f is default or f in seen else 0.1 for f in forms]
            seen.update(forms)
            return out
        assert search.fastest(root, C.limits, 2, clock, 1)[0] == (None,)


def test_a_quick_kernel_is_left_alone():
    with workspace():
        asked = []
        def clock(roots, end=0):
            asked.extend(roots)
            return [1e-6 if search.renumbered(r) is default else 1e-7 for r in roots]
        root = product()
        default = search.renumbered(schedule(root, C.limits))
        assert search.fastest(root, C.limits, 4, clock, 5)[0] == (None,) and len(asked) < 12


def test_time_is_bounded():
    with workspace():
        root = product(64, 64, 64)

        def slow(roots, end=float("inf")):
            out = []
            for _ in roots:
                if time.perf_counter() > end: out.append(float("inf"))
                else:
                    time.sleep(0.02)
                    out.append(random.random() + 1)
            return out
        start = time.perf_counter()
        search.fastest(root, C.limits, 8, slow, 0.5)
        assert time.perf_counter() - start < 3


# --- the cache

def searched(root, width="1"):
    "What the stage makes of a kernel."
    os.environ["TINYLIT_SEARCH"] = width
    try: return search.search(root, C.limits)
    finally: del os.environ["TINYLIT_SEARCH"]


@pytest.fixture
def counted(monkeypatch):
    "The searches that are made; each finds two lanes of four."
    made = []

    def fastest(root, limits, width, clock, seconds):
        made.append((width, seconds))
        path = (Opt("VECTOR", list(loops_of(root))[-1], 4),)
        return path, search.follow(root, path, limits)
    monkeypatch.setattr(search, "fastest", fastest)
    return made


def test_without_a_wish_there_is_no_search(monkeypatch, counted, tmp_path):
    for value in (None, "", "0"):
        if value is not None: monkeypatch.setenv("TINYLIT_SEARCH", value)
        with workspace():
            root = product()
            assert search.search(root, C.limits) is schedule(root, C.limits)
    assert not counted and not kept(tmp_path)


@pytest.mark.parametrize("value", ["fast", "-1", "2.5", "1,000"])
def test_a_wrong_wish_is_told(monkeypatch, value):
    monkeypatch.setenv("TINYLIT_SEARCH", value)
    with pytest.raises(ValueError, match=f"TINYLIT_SEARCH={value} "): (Tensor([1., 2.]) + 1).realize()


def test_what_was_found_is_kept(counted, tmp_path):
    with workspace():
        root = product()
        first = searched(root)
        assert searched(root) is first and counted == [(1, search.KERNEL)]
        file, = kept(tmp_path)
        assert intact(file) and json.loads(file.read_bytes()[:-32])[0][0] == "VECTOR"


def test_what_it_depends_on_is_searched_anew(counted, monkeypatch):
    with workspace():
        root, other = product(), product(13)
        searched(root)
        searched(other)
        searched(root, "2")
        search.search(root, C.limits)
        monkeypatch.setenv("TINYLIT_SEARCH", "1")
        search.search(root, C.limits | {"lanes": 2})
        monkeypatch.setattr(C.compiler, "command", ["another", "compiler"])
        search.search(root, C.limits)
        assert [width for width, _ in counted] == [1, 1, 2, 1, 1]


POISON = {      # what stands in the file: its bytes, or the text that is kept with the right checksum
    "empty": b"", "garbage": b"garbage", "no checksum": b'[["VECTOR", 0, 4]]', "zeros": bytes(100),
    "no json": "lanes, please", "no list": "5", "no tuples": "[1, 2]", "too many": '[["VECTOR", 0, 4, 4]]', "words": '[["VECTOR", 0, "four"]]',
    "no such kind": '[["SWIRL", 0, 4]]', "no such loop": '[["VECTOR", 99, 4]]', "not legal": '[["VECTOR", 0, 3]]', "a dict": '[{"kind": "JAM"}]',
    "a list of lists": '[[["JAM"], [0], [2]]]', "not text": b"\xff\xfe\x00"}


@pytest.mark.parametrize("name", POISON)
def test_a_poisoned_file_is_ignored_and_written_again(name, counted, tmp_path):
    with workspace():
        root = product()
        right = searched(root)
        file, = kept(tmp_path)
        good, bad = file.read_bytes(), POISON[name]
        if isinstance(bad, bytes): file.write_bytes(bad)
        else: keep(file, bad.encode())
        assert searched(root) is right and len(counted) == 2
        assert file.read_bytes() == good


def test_bytes_that_are_no_text_with_the_right_checksum(counted, tmp_path):
    with workspace():
        root = product()
        right = searched(root)
        file, = kept(tmp_path)
        keep(file, b"\xff\xfe\x00")
        assert searched(root) is right and len(counted) == 2


def test_a_schedule_has_a_budget(counted, monkeypatch, tmp_path):
    "Kernels for which no time is left get the default, and are not marked as searched."
    monkeypatch.setattr(search, "SCHEDULE", 0)
    with workspace():
        root = product()
        assert searched(root) is schedule(root, C.limits)
    assert not counted and not kept(tmp_path)


PROCESS = """
import numpy as np
from tinylit import Tensor
from tinylit.compiler import search
search.QUICK, search.KERNEL = 0, 0.5
rng = np.random.default_rng(0)
a, b = (rng.standard_normal((64, 64)).astype("float32") for _ in "ab")
np.testing.assert_allclose((Tensor(a) @ Tensor(b)).softmax(1).numpy(), Tensor(a, device="numpy").matmul(Tensor(b, device="numpy")).softmax(1).numpy(), rtol=1e-3, atol=1e-5)
print("equal")
"""


def test_several_processes_at_once(tmp_path):
    env = os.environ | {"TINYLIT_SEARCH": "1"}
    crew = [subprocess.Popen([sys.executable, "-c", PROCESS], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [p.communicate(timeout=200)[0] for p in crew] == ["equal\n"] * 3
    files = kept(tmp_path)
    assert files and all(map(intact, files))
    before = [f.stat().st_mtime_ns for f in files]
    again = subprocess.run([sys.executable, "-c", PROCESS], env=env, capture_output=True, text=True, timeout=200)
    assert again.stdout == "equal\n" and [f.stat().st_mtime_ns for f in files] == before
