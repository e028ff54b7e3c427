"""What tinylit wants to reach: as data, and how far a run is from it. Information, not a test: a loud neighbour misses them all."""
from collections import namedtuple
from statistics import geometric_mean

Verdict = namedtuple("Verdict", "what value limit met")

# The name of a workload -> its time may be this times the best other library's.
RATIOS = {
    "softmax 4096x1024": 1.15, "layer norm 4096x1024": 0.9, "softmax 4096x1024 f+b": 0.75, "layer norm 4096x1024 f+b": 0.75,
    "sum axis 0, 4096x4096": 0.8, "sum axis 1, 4096x4096": 0.8, "sum all, 4096x4096": 0.8,
    "max axis 0, 4096x4096": 0.8, "max axis 1, 4096x4096": 0.8, "argmax axis 0, 4096x4096": 0.7, "argmax axis 1, 4096x4096": 0.7,
    "tanh-GELU, 16M": 0.25, "chain of 8, 16M": 0.5, "vector @ matrix 4096": 0.9, "matrix @ vector 4096": 0.9,
    "32x768 @ 768x3072": 1.05, "conv 3x3 64->64 56x56 batch 32 f+b": 0.9, "MLP step": 0.8, "CNN step on MNIST": 0.95,
    "ResNet-18 224x224": 1.05, "GPT-2 prefill 256": 0.95, "GPT-2 decode": 0.75,
}
# The name of a workload -> the share of the measured peak that it must reach.
SHARES = {"matmul 512": 0.93, "matmul 1024": 0.93, "matmul 2048": 0.93, "conv 3x3 64->64 56x56 batch 32": 0.88}
# Over all workloads: the geometric mean of the ratios to a library, or to the best one of each row.
MEANS = {"best": 0.85, "torch": 0.5, "tinygrad": 0.12}
WORST = 1.25            # and no row above this

# What bench/first.py measures -> at most this: seconds, a ratio, or microseconds, as the name says.
FIRST = {
    "import tinylit, ms": 80, "cold: 64x64 matmul, s": 0.3, "cold: MLP step, s": 1.0, "cold: CNN step, s": 2.5,
    "warm: 64x64 matmul, s": 0.2, "warm: MLP step, s": 0.4, "warm: CNN step, s": 0.8,
    "10,000 operations, s": 0.5, "10,000 against 1,000, a node": 1.3,
    "replay, us a kernel": 0.3, "replay, us a call": 5, "CNN step, peak / lower bound": 1.1,
}


def ratio(row: dict, name: str) -> float | None:
    "Tinylit's median divided by that of library `name`, or of the `best` one; None if one of them is missing."
    ours, others = row.get("tinylit", {}), {n: r for n, r in row.items() if n != "tinylit" and (name == "best" or n == name)}
    theirs = [r["median"] for r in others.values() if "median" in r]
    return ours["median"] / min(theirs) if theirs and "median" in ours else None


def ratios(results: dict, name: str) -> dict[str, float]:
    "The ratio to library `name`, or to the `best` one, in each row that has one."
    every = {workload: ratio(row, name) for workload, row in results.items()}
    return {workload: r for workload, r in every.items() if r}


def verdicts(results: dict, shares: dict[str, float]) -> list[Verdict]:
    "Every target that these results say something about; `shares` are those of the peak, by workload."
    def at_most(what, value, limit): return Verdict(what, value, limit, value <= limit)
    best, out = ratios(results, "best"), []
    for name, limit in MEANS.items():
        if some := ratios(results, name): out.append(at_most(f"{name}, mean of {len(some)}", geometric_mean(some.values()), limit))
    if best: out.append(at_most(f"worst row: {max(best, key=best.get)}", max(best.values()), WORST))
    out += [at_most(f"{w} / best", best[w], limit) for w, limit in RATIOS.items() if w in best]
    return out + [Verdict(f"{w}, of the peak", shares[w], least, shares[w] >= least) for w, least in SHARES.items() if w in shares]


def lines(found: list[Verdict]) -> list[str]:
    "A line for each verdict."
    return [f"{'met   ' if v.met else 'missed'} {v.what:52} {v.value:8.3g}  wanted {v.limit:g}" for v in found]
