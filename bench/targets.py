"""What tinylit wants to reach: as data, and how far a run is from it. Information, not a test: a loud neighbour misses them all."""
from statistics import geometric_mean

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


def ratio(row: dict, name: str, by: str = "median") -> float | None:
    "Tinylit's `median` or `least` divided by that of library `name`, or of the `best` one; None if one of them is missing."
    theirs = [r[by] for n, r in row.items() if by in r and n != "tinylit" and name in ("best", n)]
    ours = row.get("tinylit", {}).get(by)
    return ours / min(theirs) if theirs and ours else None


def ratios(results: dict, name: str, by: str = "median") -> dict[str, float]:
    "The ratio to library `name`, or to the `best` one, in each row that has one."
    every = {workload: ratio(row, name, by) for workload, row in results.items()}
    return {workload: r for workload, r in every.items() if r}


def figures(results: dict, shares: dict[str, float], by: str = "median") -> dict[str, float]:
    "The value for each target that these results say something about; `shares` are those of the peak, by workload."
    best, out = ratios(results, "best", by), {}
    for name in MEANS:
        if some := ratios(results, name, by): out[f"{name}, mean of {len(some)}"] = geometric_mean(some.values())
    if best: out["worst row"] = max(best.values())
    out |= {f"{w} / best": best[w] for w in RATIOS if w in best}
    return out | {f"{w}, of the peak": shares[w] for w in SHARES if w in shares}


def limit(what: str) -> float:
    "What was wanted of a figure."
    name, of = what.removesuffix(" / best").removesuffix(", of the peak"), what.split(", mean of ")[0]
    return {"worst row": WORST, **RATIOS, **SHARES, **FIRST}.get(name) or MEANS[of]


def met(what: str, value: float) -> bool:
    "Whether a figure is as wanted: a share of the peak at least that, everything else at most."
    return value >= limit(what) if what.endswith(", of the peak") else value <= limit(what)


def lines(values: dict[str, float], least: dict[str, float]) -> list[str]:
    "A line for each figure: whether it is as wanted, its value by medians, and by the least times."
    def line(what): return f"{what:46} {values[what]:8.3f} {least[what]:8.3f}  wanted {limit(what):<6g} {'met' if met(what, values[what]) else 'missed'}"
    return [f"{'target':46} {'median':>8} {'least':>8}", *map(line, values)]
