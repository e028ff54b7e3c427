"""Measure tinylit against numpy, and against PyTorch if it is installed.

    python bench/run.py [--rounds 20] [--json FILE] [case ...]

The libraries take turns, one run each a round, so that a slow moment of the machine meets them all. Ratios compare
medians: 2.0 means that the other library needs twice as long as tinylit.
"""
import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
import numpy as np
from tinylit import Tensor
from tinylit import jit
from tinylit import nn
from tinylit.cli import CNN
from tinylit.cli import training_step
from tinylit.data import digits_raw

try: import torch
except ImportError: torch = None

rng = np.random.default_rng(0)


def normal(*shape) -> np.ndarray: return rng.standard_normal(shape).astype(np.float32)


def matmul(n: int) -> dict[str, Callable]:
    "The product of two n by n matrices, float32."
    a, b = normal(n, n), normal(n, n)
    product = jit(lambda x, y: x @ y)
    x, y = Tensor(a).realize(), Tensor(b).realize()
    runs = {"tinylit": lambda: product(x, y).realize(), "numpy": lambda: a @ b}
    if torch: runs["torch"] = lambda s=torch.from_numpy(a), t=torch.from_numpy(b): s @ t
    return runs


def np_softmax(a: np.ndarray) -> np.ndarray:
    e = np.exp(a - a.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def softmax(rows: int, columns: int) -> dict[str, Callable]:
    "Softmax of each row, float32."
    a = normal(rows, columns)
    f, x = jit(lambda x: x.softmax(1)), Tensor(a).realize()
    runs = {"tinylit": lambda: f(x).realize(), "numpy": lambda: np_softmax(a)}
    if torch: runs["torch"] = lambda t=torch.from_numpy(a): t.softmax(1)
    return runs


def torch_cnn_step(x: np.ndarray, y: np.ndarray) -> Callable:
    "The same network and optimizer as tinylit.cli.CNN, in PyTorch."
    layers = torch.nn
    conv = lambda i, o: (layers.Conv2d(i, o, 3, padding=1), layers.ReLU(), layers.MaxPool2d(2))
    model = layers.Sequential(*conv(1, 16), *conv(16, 32), layers.Flatten(), layers.Linear(32 * (x.shape[-1] // 4) ** 2, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    def step():
        loss = layers.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()
    return step


def cnn_step(batch: int) -> dict[str, Callable]:
    "One step of Adam on a small CNN and `batch` digits; numpy has none."
    raw = digits_raw()
    x = np.frombuffer(raw["x_train"].data, np.uint8).reshape(raw["x_train"].shape)[:batch].astype(np.float32) / 16
    y = np.frombuffer(raw["y_train"].data, np.uint8)[:batch].astype(np.int64)
    rows = Tensor(list(range(batch))).realize()
    model = CNN(8)
    optimizer = nn.optim.Adam(nn.parameters(model), lr=0.003)
    step = training_step(model, optimizer, Tensor(x).realize(), Tensor(y.astype(np.int32)).realize())
    runs = {"tinylit": lambda: step(rows).item()}
    if torch: runs["torch"] = torch_cnn_step(x, y)
    return runs


CASES = {
    "matmul 512": lambda: matmul(512),
    "matmul 1024": lambda: matmul(1024),
    "softmax 4096x1024": lambda: softmax(4096, 1024),
    "cnn step 128": lambda: cnn_step(128),
}


def measure(runs: dict[str, Callable], rounds: int) -> dict[str, dict[str, float]]:
    "Median and least milliseconds of each library, after two rounds to warm up."
    taken = {name: [] for name in runs}
    for _ in range(rounds + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            taken[name].append((time.perf_counter() - start) * 1000)
    return {name: dict(median=statistics.median(ms[2:]), least=min(ms[2:])) for name, ms in taken.items()}


def row(case: str, result: dict) -> str:
    "A line of the table: milliseconds of each library, then the others' medians divided by tinylit's."
    ours = result["tinylit"]["median"]
    times = "  ".join(f"{name} {r['median']:9.3f} ({r['least']:9.3f})" for name, r in result.items())
    ratios = "  ".join(f"{name}/tinylit {r['median'] / ours:5.2f}" for name, r in result.items() if name != "tinylit")
    return f"{case:18} {times}   {ratios}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    args = parser.parse_args()
    threads = os.environ.get("OMP_NUM_THREADS", os.cpu_count())
    print(f"milliseconds: median (least) of {args.rounds} rounds, {threads} threads, "
          f"torch {torch.__version__ if torch else 'is not installed'}")
    results = {}
    for case in args.cases or CASES:
        results[case] = measure(CASES[case](), args.rounds)
        print(row(case, results[case]), flush=True)
    if args.json: args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__": main()
