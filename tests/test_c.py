"The C device where things go wrong: odd integers, broken caches, interrupted compilers, forks, threads."
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tinylit.backend import c
from tinylit.backend.device import Unavailable
from tinylit.backend.device import device as find_device
from tinylit.compiler import realize
from tinylit.graph.dtype import TABLE, bounds_of
from tinylit.tensor import Tensor

try: C = find_device("c")
except Unavailable as e: pytest.skip(str(e), allow_module_level=True)

INTEGERS = [d for d in TABLE.values() if d.is_int]
HELLO = "void run(void **B, const int *N, long t, long T, _Atomic long long *s) { *(int *)B[0] = 42; }"
ADD = "from tinylit import Tensor; print((Tensor([1., 2., 3.], device='c') + 1).sum().tolist())"


def both(f, *columns, dtype):
    "What numpy and C make of the same numbers."
    return [f(*(Tensor(list(v), dtype=dtype, device=name) for v in columns)).tolist() for name in ("numpy", "c")]


def all_of(functions: dict, *columns, dtype):
    "What numpy and C make of the same numbers, many functions at once: name -> (reference, result)."
    results = []
    for name in ("numpy", "c"):
        lazy = [f(*(Tensor(list(v), dtype=dtype, device=name) for v in columns)) for f in functions.values()]
        Tensor.realize(*lazy)
        results.append([repr(t.tolist()) for t in lazy])
    return dict(zip(functions, zip(*results)))


def python(text: str, **env) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", text], env=os.environ | env, capture_output=True, text=True, timeout=100)


def files(folder) -> list[str]: return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def cache(tmp_path, monkeypatch):
    "An empty cache."
    monkeypatch.setenv("TINYLIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiler(tmp_path):
    "A compiler that hangs, once, as soon as it is asked for a library; `waiting` appears when it does."
    real, fake = c.find_compiler(), tmp_path / "slow"
    waiting = tmp_path / "waiting"
    fake.write_text(f'''#!/bin/sh
case "$*" in *-dM*) ;; *) if [ ! -e {waiting} ]; then touch {waiting}; exec sleep 60; fi;; esac
exec {' '.join(real)} "$@"
''')
    fake.chmod(0o755)
    return fake, waiting


# --- integers: nothing kills the process, every device agrees

@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ["//", "%"])
def test_division_of_whatever_by_whatever(dtype, op):
    lo, hi = bounds_of(dtype)
    odd = [v for v in (lo, lo + 1, -7, -2, -1, 0, 1, 2, 3, 7, hi - 1, hi) if lo <= v <= hi]
    pairs = list(zip(*((a, b) for a in odd for b in odd)))
    f = {"//": lambda a, b: a // b, "%": lambda a, b: a % b}[op]
    reference, got = both(f, *pairs, dtype=dtype)
    assert got == reference
    for a, b, y in zip(*pairs, got):
        if b and not (a == lo and b == -1): assert y == f(a, b)
        if not b: assert y == 0


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("op", ["<<", ">>"])
def test_shifts_by_more_bits_than_there_are(dtype, op):
    lo, hi = bounds_of(dtype)
    numbers = [v for v in (lo, -3, -1, 0, 1, 5, hi) if lo <= v <= hi]
    bits = [b for b in (-1, 0, 1, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100) if lo <= b <= hi]
    pairs = list(zip(*((a, b) for a in numbers for b in bits)))
    f = {"<<": lambda a, b: a << b, ">>": lambda a, b: a >> b}[op]
    reference, got = both(f, *pairs, dtype=dtype)
    assert got == reference


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_floats_become_the_nearest_integer_that_there_is(dtype, source):
    lo, hi = bounds_of(dtype)
    values = [0.5, -0.5, 1.99, -1.99, 127.9, 128.0, -129.0, 3e9, -3e9, 1.5 * 2.0**63, -1.5 * 2.0**63, 2.0**100, float("inf"), float("-inf")]
    reference, got = both(lambda x: x.cast(dtype), values + [float("nan")], dtype=source)
    assert got == reference == [max(lo, min(hi, int(max(-1e30, min(1e30, v))))) for v in values] + [0]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_what_does_not_fit_wraps(dtype):
    lo, hi = bounds_of(dtype)
    reference, got = both(lambda x: x * 2 + x * x - (-x), [lo, lo + 1, 0, 1, hi // 2, hi - 1, hi], dtype=dtype)
    assert got == reference


NUMBERS = [d for d in TABLE.values() if d.name not in ("bool", "float16", "bfloat16")]
OPERATIONS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "-x": lambda a, b: -a - -b,
    "max": lambda a, b: a.maximum(b), "min": lambda a, b: a.minimum(b), "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    "==": lambda a, b: a.eq(b), "where": lambda a, b: (a < b).where(a * 2, b + 1), "sum": lambda a, b: (a + b).sum(),
    "largest": lambda a, b: (a * b).max(), "bool": lambda a, b: (a.cast("bool") & (b < a)).cast("int32")}
BITS = {"&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b}


@pytest.fixture(params=["plain loops", "scheduled"])
def loops(request, monkeypatch):
    "The compiler with and without the stages that turn loops into vectors."
    if request.param == "plain loops": monkeypatch.setattr(realize, "stages", {})
    realize.schedule_of.cache_clear()
    request.addfinalizer(realize.schedule_of.cache_clear)


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_operation_on_every_dtype(dtype, loops):
    lo, hi = bounds_of(dtype) if dtype.is_int else (-1e30, 1e30)
    odd = [v for v in (lo, lo / 2, -7, -3, -1, 0, 1, 2, 3, 7, hi // 2, hi) if lo <= v <= hi]
    odd = [int(v) for v in odd] if dtype.is_int else [*map(float, odd), 0.5, float("inf"), float("-inf"), float("nan"), -0.0]
    pairs = list(zip(*((a, b) for a in odd for b in odd)))
    operations = OPERATIONS | (BITS if dtype.is_int else {})
    for name, (reference, got) in all_of(operations, *pairs, dtype=dtype).items(): assert got == reference, name


@pytest.mark.parametrize("source", NUMBERS, ids=str)
def test_every_cast(source, loops):
    lo, hi = bounds_of(source) if source.is_int else (-1e30, 1e30)
    odd = [v for v in (lo, -300, -129, -3, -1, 0, 1, 2, 3, 127, 128, 255, 256, 70000, hi) if lo <= v <= hi]
    casts = {to.name: lambda x, to=to: x.cast(to) for to in NUMBERS}
    for name, (reference, got) in all_of(casts, list(map(int if source.is_int else float, odd)), dtype=source).items():
        assert got == reference, name


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"), 0.1, -1.5])
def test_numbers_in_the_source(value, loops):
    "Each is written into the text of the kernel, and comes back bit for bit."
    for dtype in ("float32", "float64"):
        reference, got = both(lambda x: (x < 5).where(value, x), [1.0, 2.0, 3.0], dtype=dtype)
        assert repr(got) == repr(reference)


def test_whole_numbers_in_the_source(loops):
    for dtype in INTEGERS:
        ends = {v: lambda x, v=v: (x < 5).where(v, x) for v in bounds_of(dtype)}
        for v, (reference, got) in all_of(ends, [1, 2, 3], dtype=dtype).items(): assert got == reference == repr([v] * 3)


# --- the cache

@pytest.mark.parametrize("damage", [lambda p: p.write_bytes(p.read_bytes()[:100]), lambda p: p.write_bytes(b"garbage"),
                                    lambda p: p.write_bytes(b""), lambda p: p.unlink(),
                                    lambda p: p.write_bytes(p.read_bytes()[:-32]),
                                    lambda p: p.write_bytes(p.read_bytes()[:-1] + b"\xff"),
                                    lambda p: p.write_bytes(b"\0" + p.read_bytes()[1:])],
                         ids=["truncated", "garbage", "empty", "gone", "no sum", "garbled sum", "one wrong byte"])
def test_a_corrupt_entry_is_rebuilt(cache, damage):
    path = C.compiler.compile(HELLO)
    before = path.read_bytes()
    damage(path)
    assert C.compiler.compile(HELLO) == path and path.read_bytes() == before and c.intact(path)


def test_a_corrupt_entry_is_rebuilt_by_a_program_that_needs_it(cache):
    assert python(ADD).stdout == "9.0\n"
    for p in cache.glob("*.so"): p.write_bytes(b"\x7fELF and then nothing")
    run = python(ADD)
    assert run.stdout == "9.0\n", run.stderr


def test_an_intact_entry_is_not_built_again(cache, monkeypatch):
    path = C.compiler.compile(HELLO)
    monkeypatch.setattr(c.Compiler, "build", lambda *_: pytest.fail("built twice"))
    assert C.compiler.compile(HELLO) == path


def test_processes_that_compile_the_same_kernel_at_once(cache):
    crowd = [subprocess.Popen([sys.executable, "-c", ADD], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [p.communicate(timeout=100)[0] for p in crowd] == ["9.0\n"] * 4
    names = files(cache)
    assert names and {n.rpartition(".")[2] for n in names} == {"so"}
    assert all(c.intact(p) for p in cache.glob("*.so"))


def test_a_cache_that_cannot_be_written_gives_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TINYLIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(Unavailable, match="set TINYLIT_CACHE"): C.compiler.compile(HELLO)


# --- the compiler

@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupted_compile_leaves_nothing_behind_and_everything_usable(cache, compiler):
    fake, waiting = compiler
    program = f"""
from pathlib import Path
from tinylit import Tensor
x = Tensor([1., 2., 3.], device='c') + 1
try: x.sum().tolist()
except KeyboardInterrupt: print("interrupted", [p.name for p in Path({str(cache)!r}).glob("*")], flush=True)
print(x.sum().tolist())
"""
    p = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"CC": str(fake)}, stdout=subprocess.PIPE, text=True)
    for _ in range(600):
        if waiting.exists(): break
        time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    assert p.communicate(timeout=100)[0] == "interrupted []\n9.0\n"
    assert {n.rpartition(".")[2] for n in files(cache)} == {"so"}


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_no_compiler_of_several_outlives_an_interrupt(tmp_path):
    fake = tmp_path / "slow"
    fake.write_text('#!/bin/sh\necho $$ > "$1.part"; mv "$1.part" "$1"; exec sleep 60\n')
    fake.chmod(0o755)
    names = [tmp_path / n for n in "ab"]
    text = f"import tinylit.backend.c as c\nc.Compiler.call(type('', (), {{'command': [{str(fake)!r}]}}), '', [{str(names[0])!r}], [{str(names[1])!r}])"
    p = subprocess.Popen([sys.executable, "-c", text], stderr=subprocess.DEVNULL)
    for _ in range(600):
        if all(n.exists() for n in names): break
        time.sleep(0.05)
    p.send_signal(signal.SIGINT)
    assert p.wait(100)
    for n in names:
        with pytest.raises(ProcessLookupError): os.kill(int(n.read_text()), 0)


def parted(most, monkeypatch, n=9):
    "A unit of `n` kernels in up to `most` parts; kernel i leaves the greater of i * i and what is there."
    monkeypatch.setattr(c, "ENOUGH", 1)
    kernels = [f"static void k{i}(int *restrict b0, long t, long T) {{\n  if (!t) b0[{i}] = max_i32(b0[{i}], {i * i});{' ' * 10 * i}\n}}"
               for i in range(n)]
    return c.unit_parts([*kernels, *kernels], [f"k{i}(B[0], t, T);" for i in range(n)], most), kernels


@pytest.mark.parametrize("most", [1, 2, 4, 100])
def test_a_unit_in_parts_is_one_library(cache, monkeypatch, most):
    parts, kernels = parted(most, monkeypatch)
    assert len(parts) == min(most, len(kernels))
    numbers = (ctypes.c_int * 9)(*[10] * 9)
    unit = C.load(*parts)
    work(unit, numbers, 9)
    assert list(numbers) == [10, 10, 10, 10, 16, 25, 36, 49, 64]
    library = C.library(*parts)
    assert library["run"]
    with pytest.raises(AttributeError): library["k0"]


def test_parts_take_about_the_same_time(monkeypatch):
    parts, kernels = parted(3, monkeypatch, 60)
    lengths = [sum(len(k) for k in kernels if k.replace("static", "HIDDEN") in part) for part in parts]
    assert sum(lengths) == sum(map(len, kernels)) and max(lengths) - min(lengths) <= max(map(len, kernels))


def test_a_small_unit_is_one_part():
    unit = ["static void k0() {\n}"], ["k0();"]
    assert c.unit_parts(*unit, 64) == [c.unit_text(*unit)]


def test_a_part_that_is_refused_shows_all_of_them(cache):
    with pytest.raises(c.CompileError) as e: C.compiler.compile(HELLO, "int broken( { nonsense }")
    assert e.value.source == f"{HELLO}\nint broken( {{ nonsense }}" and "error" in e.value.log and files(cache) == []


def test_without_a_compiler_the_message_gives_the_way_out(tmp_path):
    run = python(f"import tinylit.backend.c as c; c.find_spec = lambda name: None\n{ADD}", PATH=str(tmp_path), CC="")
    assert "Unavailable" in run.stderr and "apt-get install gcc" in run.stderr and "pip install" in run.stderr


def test_without_a_compiler_the_default_device_is_another(tmp_path):
    text = "import tinylit.backend.c as c; c.find_spec = lambda name: None\nfrom tinylit import Tensor; print(Tensor([1, 2]).device)"
    run = python(text, PATH=str(tmp_path), CC="", TINYLIT_DEVICE="", TINYLIT_TARGET="")
    assert "numpy" in run.stdout, run.stderr


def test_a_compiler_that_refuses_shows_source_and_log(cache):
    with pytest.raises(c.CompileError) as e: C.compiler.compile("int run( { nonsense }")
    assert e.value.source == "int run( { nonsense }" and "error" in e.value.log
    assert "nonsense" in str(e.value) and files(cache) == []


def test_a_compiler_that_crashes_is_a_compile_error(cache, tmp_path):
    fake = tmp_path / "broken"
    fake.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    fake.chmod(0o755)
    with pytest.raises(c.CompileError, match="out of order"): c.Compiler([str(fake)]).compile(HELLO)
    assert files(cache) == []


def test_other_compilers_and_other_machines_have_entries_of_their_own(cache):
    a, b = c.Compiler(C.compiler.command), c.Compiler(C.compiler.command)
    b.macros += "#define __OTHER__ 1\n"
    assert a.compile(HELLO) != b.compile(HELLO)


# --- the target

def test_a_target_fixes_what_the_schedule_counts_on():
    given = {"lanes": 8, "threads": 2}
    assert len({str(c.limits_of(macros, given)) for macros in ("", "__AVX__", "__AVX__ __AVX512F__", "__ARM_NEON")}) == 1


def test_a_target_fixes_the_source(cache):
    text = """
from tinylit.backend import c
if MACROS: c.Compiler.__init__ = lambda self, command: self.__dict__.update(command=command, macros=MACROS)
from tinylit import Tensor
x = Tensor.ones(64, 64, device='c').contiguous()
print((x @ x).softmax(-1).source())
"""
    machines = ["None", "'__AVX512F__ __AVX__'", "'__ARM_NEON'"]
    runs = [python(text.replace("MACROS", m), TINYLIT_TARGET="c:lanes=8,threads=2") for m in machines]
    assert len({r.stdout for r in runs}) == 1 and "f32x8" in runs[0].stdout, runs[1].stderr


# --- threads

RUN = "void run(void **B, const int *N, long t, long T, _Atomic long long *s)"
COUNT = f"""{c.HEAD}
{RUN} {{
  for (long i = N[0]*t/T; i < N[0]*(t+1)/T; i++) ((int *)B[0])[i] += 1;
  barrier(T, s);
}}"""
CHAIN = f"""{c.HEAD}
{RUN} {{     // part(
  int *b = B[0], n = N[0];         // after the last barrier nothing of the caller may be touched
  for (int i = 0; i < n; i++, barrier(T, s)) {{
    int all = 1;
    for (long u = 0; u < T; u++) all &= b[1024*i + u] == i;
    b[1024*(i + 1) + t] = all ? i + 1 : -1;
  }}
}}"""


def work(unit, numbers, n: int, times: int = 1):
    pointers, ints = (ctypes.c_void_p * 1)(ctypes.addressof(numbers)), (ctypes.c_int * 1)(n)
    for _ in range(times): C.launch(unit, pointers, ints)


def test_every_thread_waits_for_all_others():
    "A hundred steps, each of which needs what every thread did in the one before."
    numbers = (ctypes.c_int * (101 * 1024))()
    for _ in range(20): work(C.load(CHAIN), numbers, 100)
    last = numbers[100 * 1024:]
    assert last[0] == 100 and set(last) <= {0, 100}


def test_no_wake_up_is_lost():
    numbers = (ctypes.c_int * 64)()
    for turn in range(60):
        work(C.load(COUNT), numbers, 64, 20)
        time.sleep(0.001 * (turn % 4))          # long enough to fall asleep, now and then
    assert list(numbers) == [1200] * 64


def test_python_threads_take_turns():
    arrays = [(ctypes.c_int * 64)() for _ in range(4)]
    unit = C.load(COUNT)
    crowd = [threading.Thread(target=work, args=(unit, a, 64, 200)) for a in arrays]
    for t in crowd: t.start()
    for t in crowd: t.join(60)
    assert [list(a) for a in arrays] == [[200] * 64] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_a_pool_of_its_own():
    text = """
import os
from tinylit import Tensor
def work(n): return (Tensor.ones(256, 256, device='c').contiguous() * n).sum(1).tolist() == [256.0 * n] * 256
assert work(1)
for n in range(3):
    if not (child := os.fork()): os._exit(0 if work(1) and work(n + 2) else 1)
    assert os.waitpid(child, 0)[1] == 0 and work(n + 5)
print("fine")
"""
    run = python(text, TINYLIT_TARGET="c:threads=2")
    assert run.stdout == "fine\n", run.stderr


def test_settings_that_mean_nothing_say_so_or_do_no_harm():
    for text in ("c:lanes", "c:lanes=x", "c:lanes=8=9"):
        run = python(ADD, TINYLIT_TARGET=text)
        assert f"ValueError: TINYLIT_TARGET={text}" in run.stderr, run.stderr
    for text in ("lanes=0", "lanes=-8", "threads=0", "lane=8"):
        run = python(ADD, TINYLIT_TARGET=f"c:{text}")
        assert f"ValueError: TINYLIT_TARGET=c:{text}" in run.stderr and "lanes, registers, threads" in run.stderr, run.stderr
    run = python(ADD, TINYLIT_TARGET="c:lanes=6")
    assert "ValueError: lanes=6 is not a power of two" in run.stderr, run.stderr
    for level in ("foo", "-1", "1.5"):
        run = python(ADD, TINYLIT_DEBUG=level)
        assert run.stdout.strip().endswith("9.0"), run.stderr


def test_a_compiler_that_writes_nothing_is_named(cache):
    run = python(ADD, CC="echo", TINYLIT_CACHE=str(cache))
    assert "CompileError" in run.stderr, run.stderr
