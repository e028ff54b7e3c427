"""How long a first result takes, what scheduling costs, what replay adds to the kernels, how much memory a step needs.

    python bench/first.py [--runs 5] [--json FILE]

Each figure is the median of several processes (see once.py). Cold means an empty cache of compiled kernels, warm what the
cold process left behind. Times with a cache count from the start of the process; a training step's include numpy's import
and the making of the arrays. Targets are in targets.py.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
import targets

HERE = Path(__file__).resolve().parent
CACHED = {"matmul": "64x64 matmul", "MLP": "MLP step", "CNN": "CNN step"}           # part of once.py -> what it is called
PLAIN = ["import", "chain 1000", "chain 10000", "network 1000", "network 10000", "replay", "replay on threads", "memory"]


def once(part: str, cache: str) -> dict:
    "The answer of one process."
    command = [sys.executable, HERE / "once.py", part, str(time.perf_counter())]
    done = subprocess.run(command, env={**os.environ, "TINYLIT_CACHE": cache}, capture_output=True, text=True)
    if done.returncode: raise RuntimeError(f"once.py {part}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def collect(runs: int) -> dict[str, list[dict]]:
    "All answers: of parts, and of `cold: ...` and `warm: ...` ones."
    out = {}
    def keep(name, part, cache): out.setdefault(name, []).append(once(part, cache))
    with tempfile.TemporaryDirectory() as kept:
        for part in PLAIN: once(part, kept)                                         # bytecode and kernels are there
        for _ in range(runs):
            for part in PLAIN: keep(part, part, kept)
            for part, name in CACHED.items():
                with tempfile.TemporaryDirectory() as empty:
                    for state in ("cold", "warm"): keep(f"{state}: {name}", part, empty)
    return out


def figures(answers: dict[str, list[dict]]) -> dict[str, list[float]]:
    "For each row of the table the values of all runs."
    def every(name, key, scale=1): return [a[key] * scale for a in answers[name]]
    out = {"import tinylit, ms": every("import", "seconds", 1e3)}
    for state in ("cold", "warm"):
        for name in CACHED.values(): out[f"{state}: {name}, s"] = every(f"{state}: {name}", "seconds")
        for name in ("MLP step", "CNN step"): out[f"{state}: {name} alone, s"] = every(f"{state}: {name}", "step")
    for name, kind in (("operations", "chain"), ("of a network", "network")):
        out[f"10,000 {name}, s"] = every(f"{kind} 10000", "seconds")
        many, few = (every(f"{kind} {n}", "each") for n in (10_000, 1000))
        out[f"10,000 against 1,000{'' if kind == 'chain' else ' of a network'}, a node"] = [a / b for a, b in zip(many, few)]
    for part, where in (("replay", ""), ("replay on threads", " on all threads")):
        out[f"replay, us a kernel{where}"] = every(part, "kernel", 1e6)
        out[f"replay, us a call{where}"] = every(part, "call", 1e6)
    out["CNN step, peak / lower bound"] = every("memory", "ratio")
    out["CNN step, peak, MB"] = every("memory", "peak", 1e-6)
    return out


def line(name: str, values: list[float]) -> str:
    "A row of the table; whether the median is as wanted, if something is."
    middle = statistics.median(values)
    wanted = f"wanted {targets.limit(name):<6g} {'met' if targets.met(name, middle) else 'missed'}" if name in targets.FIRST else ""
    return f"{name:46} {middle:8.3f} {min(values):8.3f}  {wanted}".rstrip()


def report(runs: int, say) -> dict:
    "Measures, prints a table by `say`; what it found."
    answers = collect(runs)
    rows = figures(answers)
    say(f"{'first results and overheads':46} {'median':>8} {'least':>8}", *(line(*row) for row in rows.items()), sep="\n")
    return dict(rows=rows, answers=answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    found = report(args.runs, print)
    if args.json: args.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__": main()
