"""Measure tinylit against the libraries that people would use instead.

    python bench/run.py [--rounds 9] [--threads 2 1] [--peers numpy torch ...] [--json FILE] [--plot FILE] [workload ...]

Every library runs in a process of its own, on the same cores; they take turns, a burst of runs each, so that a slow
moment of the machine meets them all, and are stopped in between. Words after the options choose the workloads whose names contain one of them.
A ratio is tinylit's median divided by the other's: below 1, tinylit is faster. Peers come from the environment that
`make bench-peers` fills, or from this one; a missing one is named and left out.
"""
import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
import numpy as np
from workloads import WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
PEERS = ["tinylit", "numpy", "torch", "torch_compile", "jax", "onnxruntime", "tinygrad"]
THEIRS = Path(os.environ.get("TINYLIT_PEERS", HERE.parent / ".venv-peers")) / "bin" / "python"
BURST = 0.05            # seconds of runs before the next library has its turn


def environment(threads: int) -> dict[str, str]:
    "What tells the libraries how many threads to use."
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "CPU_COUNT", "THREADS")
    return {**os.environ, **{n: str(threads) for n in names}, "DEV": "CPU"}


class Peer:
    "A library in its process."
    def __init__(self, module: str, threads: int):
        self.module = module
        theirs = module != "tinylit" and THEIRS.exists()
        cores = sorted(os.sched_getaffinity(0))[:threads]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [THEIRS if theirs else sys.executable, HERE / "worker.py", module], env=environment(threads), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        hello = self.answer()
        self.name, self.version = hello.get("name", module), hello.get("version")

    def answer(self) -> dict:
        "The next line from the process; its last words if it has ended."
        if line := self.process.stdout.readline(): return json.loads(line)
        self.log.seek(0)
        return {"failed": (self.log.read().strip().splitlines() or ["no word"])[-1]}

    def ask(self, **request) -> dict:
        "An answer from the process, which stands still before and after: threads that spin would take the others' time."
        self.process.send_signal(signal.SIGCONT)
        try: print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError: pass
        answer = self.answer()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def end(self):
        self.process.kill()
        self.process.wait()


def peak(threads: int) -> dict:
    "GFLOP/s and GB/s that the machine gives, by a loop in C; nothing where no compiler is found."
    command = next(filter(shutil.which, ("gcc", "clang", "cc")), None)
    if not command: return {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "peak")
        subprocess.run([command, "-O2", "-march=native", "-pthread", HERE / "peak.c", "-o", program], check=True)
        return json.loads(subprocess.run([program, str(threads)], capture_output=True, check=True).stdout)


def agrees(w: Workload, a: list, b: list) -> bool:
    "Whether two libraries' samples are equal but for rounding: magnitude times epsilon times the root of the terms."
    for x, y in zip(a, b):
        x, y = np.array(x, np.float64), np.array(y, np.float64)
        size = max(1.0, float(np.abs(y).max(initial=0)))
        if x.shape != y.shape or not np.abs(x - y).max(initial=0) <= 64 * 6e-8 * size * math.sqrt(w.terms): return False
    return True


def measure(w: Workload, peers: list[Peer], rounds: int) -> dict[str, dict]:
    "For each library: its first call, median and least seconds, or why there are none."
    built = {p: p.ask(build=w.name) for p in peers}
    running = [p for p in peers if "first" in built[p]]
    once = {p: statistics.median(p.ask(run=2)["seconds"]) for p in running}
    seconds = {p: [] for p in running}
    for turn in range(rounds):
        for p in running[turn % max(len(running), 1):] + running[:turn % max(len(running), 1)]:
            n = min(50, max(2, round(BURST / once[p])))
            seconds[p] += p.ask(run=n)["seconds"][1:]             # the first one wakes the threads
    out = {}
    for p in peers:
        if p not in running: out[p.name] = built[p]
        else: out[p.name] = dict(first=built[p]["first"], median=statistics.median(seconds[p]), least=min(seconds[p]))
    if running:
        reference = built[running[-1]]["sample"]
        for p in running: out[p.name]["agrees"] = w.trains or agrees(w, built[p]["sample"], reference)
    return out


def shares(w: Workload, seconds: float, machine: dict) -> str:
    "The speed reached, and its share of what the machine gives."
    if not machine or not w.flops: return ""
    gflops, gbytes = w.flops / seconds / 1e9, w.nbytes / seconds / 1e9
    compute, memory = gflops / machine["gflops"], gbytes / machine["gbytes"]
    if compute > memory: return f"{gflops:6.1f} GFLOP/s {compute:4.0%}"
    return f"{gbytes:6.1f} GB/s    {memory:4.0%}"


def line(w: Workload, result: dict, names: list[str], machine: dict) -> str:
    "A row of the table: milliseconds, share of the peak, ratios to the others."
    ours = result["tinylit"]
    if "median" not in ours: return f"{w.name:34} {ours}"
    cells = []
    for name in names:
        r = result.get(name, {})
        mark = "" if r.get("agrees", True) else "!"
        cells.append(f"{r['median'] * 1e3:.2f} {ours['median'] / r['median']:.2f}{mark}" if "median" in r else "-")
    return (f"{w.name:34} {ours['median'] * 1e3:9.3f} {ours['least'] * 1e3:9.3f} {shares(w, ours['median'], machine):>21}  "
            + "".join(f"{c:>16}" for c in cells))


def geometric(ratios: list[float]) -> float: return math.exp(statistics.mean(map(math.log, ratios)))


def summary(results: dict, names: list[str]) -> list[str]:
    "Geometric means of tinylit's time divided by each library's, and by the best one's."
    out = []
    rows = [r for r in results.values() if "median" in r.get("tinylit", {})]
    for name in names:
        ratios = [r["tinylit"]["median"] / r[name]["median"] for r in rows if "median" in r.get(name, {})]
        if ratios: out.append(f"tinylit / {name}: {geometric(ratios):.2f} over {len(ratios)} workloads")
    best = []
    for r in rows:
        others = [r[n]["median"] for n in names if "median" in r.get(n, {})]
        if others: best.append(r["tinylit"]["median"] / min(others))
    if best: out.append(f"tinylit / best of the others: {geometric(best):.2f} over {len(best)} workloads, worst {max(best):.2f}")
    return out


def plot(results: dict, names: list[str], path: Path):
    "Tinylit's time divided by each library's, a row of points for each workload."
    from matplotlib import pyplot
    rows = [(w, r) for w, r in results.items() if "median" in r.get("tinylit", {})][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.28 * len(rows) + 1.2))
    for name in names:
        points = [(r["tinylit"]["median"] / r[name]["median"], i) for i, (_, r) in enumerate(rows) if "median" in r.get(name, {})]
        axes.plot(*zip(*points), "o", label=name) if points else None
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", yticks=range(len(rows)), yticklabels=[w for w, _ in rows],
             xlabel="tinylit's time divided by theirs: left of the line, tinylit is faster")
    axes.legend(fontsize=7)
    figure.savefig(path, bbox_inches="tight", dpi=120)
    pyplot.close(figure)


def session(threads: int, args) -> dict:
    "All workloads on so many threads."
    machine, found = peak(threads), [Peer(m, threads) for m in ["tinylit", *args.peers]]
    peers = [p for p in found if p.version]
    for p in found:
        if not p.version: print(f"left out: {p.module} ({p.answer().get('failed')})")
    names = [p.name for p in peers[1:]]
    print(f"{threads} thread(s); peak {machine}; " + ", ".join(f"{p.name} {p.version}" for p in peers))
    print(f"{'workload':34} {'ms median':>9} {'least':>9} {'reached, of the peak':>21}  "
          + "".join(f"{n:>16}" for n in names))
    results = {}
    chosen = [w for w in WORKLOADS if not args.workloads or any(word in w.name for word in args.workloads)]
    for w in chosen:
        results[w.name] = measure(w, peers, args.rounds)
        print(line(w, results[w.name], names, machine), flush=True)
        for name, r in results[w.name].items():
            if "failed" in r: print(f"    {name}: {r['failed']}", flush=True)
    print(*summary(results, names), sep="\n")
    for p in peers: p.end()
    if args.plot: plot(results, names, args.plot.with_stem(f"{args.plot.stem}-{threads}"))
    return dict(machine=machine, versions={p.name: p.version for p in peers}, results=results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", help="words: workloads whose names contain one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--peers", nargs="+", default=PEERS[1:], choices=PEERS[1:])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--plot", type=Path, help="also draw the ratios into this file (png, svg)")
    args = parser.parse_args()
    report = {str(n): session(n, args) for n in args.threads}
    if args.json: args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__": main()
