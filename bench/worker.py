"""One library in a process of its own: `python worker.py PEER`. Requests and answers are lines of JSON.

    {"build": workload} -> {"first": seconds, "warm": [seconds...], "sample": numbers} or {"missing": why}
    {"run": n}          -> {"seconds": [...]}: n runs of what was built last
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
    return getattr(peer, w.kind)(w.run, *w.given())


def as_array(v) -> np.ndarray:
    if hasattr(v, "detach"): v = v.detach()
    return v.numpy() if hasattr(v, "numpy") else np.asarray(v)


def sample(value) -> list[list[float]]:
    "Numbers from places spread over each result."
    values = value if isinstance(value, (tuple, list)) else [value]
    flats = [as_array(v).reshape(-1) for v in values]
    return [f[np.linspace(0, f.size - 1, min(SAMPLE, f.size)).astype(int)].tolist() for f in flats]


def repeat(call, n: int) -> list[float]:
    "The seconds of `n` calls, one after the other; their results are dropped at once."
    seconds = []
    for _ in range(n):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


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
                answer = {"first": time.perf_counter() - start}
                if BY_NAME[request["build"]].kind == "training": value = [value, call(), call()]    # steps, each on the last
                answer["sample"] = sample(value)
                value = None
                answer["warm"] = repeat(call, 3)
            else:
                answer = {"seconds": repeat(call, request["run"])}
        except AttributeError as e:
            missing = "SimpleNamespace" in str(e) or "peers." in str(e)         # the library has no such function
            answer = {"missing" if missing else "failed": str(e)}
        except Exception as e: answer = {"failed": f"{type(e).__name__}: {e}"[:500]}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__": main()
