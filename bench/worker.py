"""One library in a process of its own: `python worker.py PEER`. Requests and answers are lines of JSON.

    {"build": workload} -> {"first": seconds, "sample": numbers} or {"missing": why}
    {"run": n}          -> {"seconds": [...]}: n runs, one after the other, of what was built last
"""
import gc
import importlib
import json
import sys
import time
import numpy as np
from workloads import BY_NAME, Workload

SAMPLE = 64        # numbers of each result that the driver compares


def build(peer, w: Workload):
    "The workload as a function without arguments."
    if w.trains: return peer.training(w.run, w.parameters(), w.arrays()[0], w.targets())
    if not w.backward: return peer.forward(w.run, w.arrays())
    seed = np.random.default_rng(3).standard_normal(w.out, np.float32)
    return peer.backward(w.run, w.arrays(), w.wrt, seed)


def as_array(v) -> np.ndarray:
    if hasattr(v, "detach"): v = v.detach()
    return v.numpy() if hasattr(v, "numpy") else np.asarray(v)


def sample(value) -> list[list[float]]:
    "Numbers from places spread over each result."
    values = value if isinstance(value, (tuple, list)) else [value]
    flats = [as_array(v).reshape(-1) for v in values]
    return [f[np.linspace(0, f.size - 1, min(SAMPLE, f.size)).astype(int)].tolist() for f in flats]


def main():
    answers, sys.stdout = sys.stdout, sys.stderr            # what a library prints is no answer
    peer, call = importlib.import_module(f"peers.{sys.argv[1]}"), None
    print(json.dumps({"name": peer.name, "version": peer.version}), file=answers, flush=True)
    for line in sys.stdin:
        request, answer = json.loads(line), {}
        try:
            if "build" in request:
                call = None
                gc.collect()
                start = time.perf_counter()
                call = build(peer, BY_NAME[request["build"]])
                value = call()
                answer = {"first": time.perf_counter() - start, "sample": sample(value)}
                value = None
                for _ in range(3): call()
            else:
                seconds = []
                for _ in range(request["run"]):
                    start = time.perf_counter()
                    call()
                    seconds.append(time.perf_counter() - start)
                answer = {"seconds": seconds}
        except AttributeError as e:
            missing = "SimpleNamespace" in str(e) or "peers." in str(e)         # the library has no such function
            answer = {"missing" if missing else "failed": str(e)}
        except Exception as e: answer = {"failed": f"{type(e).__name__}: {e}"[:500]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__": main()
