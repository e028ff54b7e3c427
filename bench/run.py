"""Measure tinylit against the libraries that people would use instead.

    python bench/run.py [--rounds 9] [--threads 2 1] [--peers numpy torch ...] [--check] [--json FILE] [--out FOLDER] [workload ...]

Every library runs in a process of its own, on the same cores; they take turns, a burst of runs each, so that a slow
moment of the machine meets them all, and stand still in between. Words after the options choose the workloads whose
names contain one of them. A ratio is tinylit's median divided by the other's: below 1, tinylit is faster. `!` marks a
result that differs from the others' by more than rounding. Peers come from the environment that `make bench-peers` fills,
or from this one; a missing one is named and left out. The table and its plots (the roofline, the ratios) go to FOLDER.
Without words, first results and overheads follow (first.py).
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
import first
import targets
from workloads import WORKLOADS, Workload

HERE = Path(__file__).resolve().parent
PEERS = ["numpy", "torch", "torch_compile", "jax", "onnxruntime", "tinygrad"]
THEIRS = Path(os.environ.get("TINYLIT_PEERS", HERE.parent / ".venv-peers")) / "bin" / "python"
BURST = 0.05            # seconds of runs before the next library has its turn
ENOUGH = 2.0            # seconds of runs after which a library's turns on a workload end
SLOW = 1.0              # seconds: the last run before its turns counts, too


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
        return {"failed": (self.log.read().strip().splitlines() or [f"ended with status {self.process.wait()}"])[-1]}

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


class Machine:
    "GFLOP/s and GB/s that the machine gives: the most that loops in C have reached so far. Nothing without a compiler."
    def __init__(self, threads: int):
        self.threads, self.best, self.folder = threads, {}, tempfile.TemporaryDirectory()
        self.program = Path(self.folder.name, "peak")
        if command := next(filter(shutil.which, ("gcc", "clang", "cc")), None):
            subprocess.run([command, "-O2", "-march=native", "-pthread", HERE / "peak.c", "-o", self.program], check=True)

    def peak(self) -> dict[str, float]:
        "Measured once more."
        if self.program.exists():
            now = json.loads(subprocess.run([self.program, str(self.threads)], capture_output=True, check=True).stdout)
            self.best = {unit: max(now[unit], self.best.get(unit, 0)) for unit in now}
        return self.best


def agrees(w: Workload, a: list, b: list) -> bool:
    "Whether two libraries' samples are equal but for rounding: magnitude times epsilon times the root of the terms."
    for x, y in zip(a, b, strict=True):
        x, y = np.array(x, np.float64), np.array(y, np.float64)
        size = max(1.0, float(np.abs(y).max(initial=0)))
        if x.shape != y.shape or not np.abs(x - y).max(initial=0) <= 64 * 6e-8 * size * math.sqrt(w.terms): return False
    return True


def odd_ones(w: Workload, samples: dict[str, list]) -> list[str]:
    "Who is at odds with most of the others."
    friends = {a: sum(agrees(w, samples[a], samples[b]) for b in samples) for a in samples}
    most = max(friends, key=friends.get, default=None)
    return [a for a in samples if not agrees(w, samples[a], samples[most])]


def measure(w: Workload, peers: list[Peer], rounds: int) -> dict[str, dict]:
    "For each library: its first call, median and least seconds, or why there are none."
    out = {p.name: p.ask(build=w.name) for p in peers}
    running = [p for p in peers if "first" in out[p.name]]
    seconds = {p: [t for t in out[p.name]["warm"][-1:] if t > SLOW] for p in running}
    for turn in range(rounds):
        k = turn % max(len(running), 1)
        for p in running[k:] + running[:k]:
            had = seconds[p]
            if sum(had) > ENOUGH: continue
            once = statistics.median(had or out[p.name]["warm"])
            answer = p.ask(run=min(50, max(2, round(BURST / once))))
            if "seconds" not in answer: out[p.name] = answer            # it has died
            had += answer.get("seconds", [])[1:]                        # the first one wakes the threads
        running = [p for p in running if "first" in out[p.name]]
    odd = odd_ones(w, {p.name: out[p.name]["sample"] for p in running})
    for p in running:
        out[p.name] = dict(first=out[p.name]["first"], median=statistics.median(seconds[p]), least=min(seconds[p]),
                           runs=len(seconds[p]), agrees=p.name not in odd)
    return out


def speed(w: Workload, seconds: float, machine: dict) -> tuple:
    "What it reaches: the larger share of a peak, how much that is, and of what. Nothing where nothing is counted."
    if not machine or not w.flops: return ()
    gflops, gbytes = w.flops / seconds / 1e9, w.nbytes / seconds / 1e9
    return max((gflops / machine["gflops"], gflops, "GFLOP/s"), (gbytes / machine["gbytes"], gbytes, "GB/s"))


def title(names: list[str]) -> str:
    "The head of the table."
    return f"{'workload':34} {'ms median':>9} {'least':>9} {'reached, of the peak':>21} {'best':>5}" + "".join(f"{n:>16}" for n in names)


def line(w: Workload, result: dict, names: list[str], machine: dict) -> str:
    "A row of the table: milliseconds, share of the peak, ratio to the best of the others, milliseconds and ratio of each."
    ours = result["tinylit"]
    if "median" not in ours: return f"{w.name:34} {ours}"
    reached, best = speed(w, ours["median"], machine), targets.ratio(result, "best")
    out = f"{w.name:34} {ours['median'] * 1e3:9.3f} {ours['least'] * 1e3:9.3f} "
    out += f"{reached[1]:8.1f} {reached[2]:7} {reached[0]:4.0%} " if reached else " " * 22
    out += (f"{best:5.2f}" if best else "     ") + ("" if ours.get("agrees", True) else "!")
    for name in names:
        r, ratio = result.get(name, {}), targets.ratio(result, name)
        out += f"{r['median'] * 1e3:.2f} {ratio:.2f}{'' if r.get('agrees', True) else '!'}".rjust(16) if ratio else "-".rjust(16)
    return out


def summary(results: dict, names: list[str]) -> list[str]:
    "Geometric means of tinylit's time divided by each library's, and by the best one's: of the medians, of the least times."
    out = []
    for name in [*names, "best"]:
        some, least = targets.ratios(results, name), targets.ratios(results, name, "least")
        if not some: continue
        means, worst = [statistics.geometric_mean(r.values()) for r in (some, least)], max(some, key=some.get)
        out.append(f"tinylit / {name}: {means[0]:.2f} (by least times {means[1]:.2f}) over {len(some)} workloads; "
                   f"largest {some[worst]:.2f}, {worst}")
    return out


def plot_ratios(results: dict, names: list[str], axes):
    "Tinylit's time divided by each library's, a row of points for each workload."
    rows = list(results)[::-1]
    for name in names:
        if some := targets.ratios(results, name): axes.plot(some.values(), [rows.index(w) for w in some], "o", label=name)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", yticks=range(len(rows)), yticklabels=rows,
             xlabel="tinylit's time divided by theirs: left of the line, tinylit is faster")
    axes.legend(fontsize=7)


def plot_roofline(results: dict, machine: dict, axes):
    "Each workload by its operations a byte, under what memory and arithmetic allow; a line from tinylit to the best other."
    top = machine["gflops"]
    edge = top / machine["gbytes"]
    axes.plot([0.05, edge, 2000], [0.05 * machine["gbytes"], top, top], color="black", linewidth=1)
    for w in WORKLOADS:
        r = results.get(w.name, {})
        if not (w.nbytes and "median" in r.get("tinylit", {})): continue
        x, y = w.flops / w.nbytes, w.flops / r["tinylit"]["median"] / 1e9
        axes.plot([x, x], [y, y * (targets.ratio(r, "best") or 1)], color="silver", linewidth=1)
        axes.plot([x], [y], "o", color="tab:blue", markersize=4)
        axes.annotate(w.name, (x, y), fontsize=5, xytext=(3, 2), textcoords="offset points")
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="GFLOP/s; the grey line ends at the best other library")


def draw(results: dict, names: list[str], machine: dict, path: Path):
    "Both plots in one picture; nothing, and a word about it, where matplotlib is missing."
    try: from matplotlib import pyplot
    except ImportError: return print(f"{path} is not drawn: matplotlib is missing")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(16, 0.28 * len(results) + 2))
    plot_ratios(results, names, left)
    if machine: plot_roofline(results, machine, right)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def session(threads: int, args, say) -> dict:
    "All workloads on so many threads; `say` prints and keeps what it prints."
    machine, found = Machine(threads), [Peer(m, threads) for m in ["tinylit", *args.peers]]
    peers = [p for p in found if p.version]
    for p in found:
        if not p.version: say(f"left out: {p.module} ({p.answer().get('failed')})")
    names = [p.name for p in peers if p.name != "tinylit"]
    say(f"{threads} thread(s); peak {machine.peak()}; " + ", ".join(f"{p.name} {p.version}" for p in peers))
    say(title(names))
    results = {}
    chosen = [w for w in WORKLOADS if not args.workloads or any(word in w.name for word in args.workloads)]
    for w in chosen:
        results[w.name] = measure(w, peers, args.rounds)
        say(line(w, results[w.name], names, machine.peak()))
        for name, r in results[w.name].items():
            if "failed" in r: say(f"    {name}: {r['failed']}")
    for p in peers: p.end()
    say(*summary(results, names), sep="\n")
    shares = {by: {w.name: speed(w, r[by], machine.best)[:1] for w in chosen if by in (r := results[w.name]["tinylit"])}
              for by in ("median", "least")}
    found = {by: targets.figures(results, {w: share[0] for w, share in shares[by].items() if share}, by) for by in shares}
    if args.check: say(*targets.lines(found["median"], found["least"]), sep="\n")
    draw(results, names, machine.best, args.out / f"bench-{threads}.png")
    return dict(machine=machine.best, versions={p.name: p.version for p in peers}, results=results, shares=shares,
                targets={what: dict(value=v, wanted=targets.limit(what), met=targets.met(what, v)) for what, v in found["median"].items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", help="words: workloads whose names contain one")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--peers", nargs="+", default=PEERS, choices=[*PEERS, "torch_huge"])
    parser.add_argument("--check", action="store_true", help="say of each target whether it is met")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--out", type=Path, default=Path("tinylit-bench"), help="folder for the table and its plots")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "table.txt", "w") as table:
        def say(*words, **how):
            for file in (sys.stdout, table): print(*words, **how, file=file, flush=True)
        report = {str(n): session(n, args, say) for n in args.threads}
        if not args.workloads: report["first"] = first.report(3, say)
    if args.json: args.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__": main()
