"""One measurement in a process of its own: `python once.py PART START`, START on the clock of `time.perf_counter`.

The answer is a line of JSON. Nothing is imported before it is needed: the imports are part of what is measured.
"""
import sys
import time


def since(start: float) -> float: return time.perf_counter() - start


def importing(start):
    "Seconds that the import alone takes."
    began = time.perf_counter()
    import tinylit
    return {"seconds": since(began), "at": tinylit.__file__}


def matmul(start):
    "Seconds from the start of the process until a product of two 64x64 matrices has its numbers."
    from tinylit import Tensor
    a, b = (Tensor([[(i * j + k) % 7 / 7 for i in range(64)] for j in range(64)]) for k in (1, 2))
    first = (a @ b).data()
    return {"seconds": since(start), "bytes": len(first)}


def training(name):
    "Seconds from the start until the loss of a first training step is there, and how many of them the step took."
    def part(start):
        import peers.tinylit as peer
        from workloads import BY_NAME
        w = BY_NAME[name]
        began = time.perf_counter()
        loss = getattr(peer, w.kind)(w.run, *w.given())()
        return {"seconds": since(start), "step": since(began), "loss": loss}
    return part


def chain(n: int):
    "`n` elementwise operations, one after the other."
    from tinylit import Tensor
    x = Tensor([0.5] * 64)
    for i in range(n // 3): x = (x * 0.75 + 0.5).relu()
    return x


def network(n: int):
    "Layers of products, norms and ReLUs that add to what was there: about `n` operations."
    from tinylit import Tensor
    x, *weights = (Tensor([[0.1] * 32] * 32) for _ in range(9))
    for i in range(n // 28): x = x + (x @ weights[i % 8]).layer_norm().relu()
    return x


def graph(make, n):
    "Seconds to build and schedule `make(n)`, and how many nodes that are; no C is compiled."
    def part(start):
        from tinylit.compiler.realize import Schedule, abstract
        from tinylit.graph.node import toposort
        def scheduled(n):
            began = time.perf_counter()
            y = make(n)
            Schedule(y.device, abstract(y.device, [y.node])[0], (), None)
            return since(began), len(toposort(y.node))
        scheduled(100)                          # the device has been opened, and every module imported
        seconds, nodes = scheduled(n)
        return {"seconds": seconds, "nodes": nodes, "each": seconds / nodes}
    return part


def least(f, seconds=0.25) -> float:
    "The least of many times of a call."
    best, end = 1e9, time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        for _ in range(20): f()
        best = min(best, since(began) / 20)
    return best


def launched(f) -> tuple:
    "What the one launch of `f()` was given: the schedule, its pointers and integers."
    from tinylit.backend.device import compiler
    seen, launch = [], compiler["launch"]
    compiler["launch"] = lambda *words: seen.append(words) or launch(*words)
    f()
    compiler["launch"] = launch
    (found,) = seen
    return found


def own_time(schedule, B, N, threads: int) -> float:
    "Seconds that one thread's share of the kernels takes, called from C with nothing in between."
    import ctypes
    text = schedule.source().replace("barrier(T, s);", "")
    assert text != schedule.source()
    run, _ = schedule.device.load(text)
    zero, all_threads = ctypes.c_long(0), ctypes.c_long(threads)
    return least(lambda: run(B, N, zero, all_threads, None))


def replay(size):
    "Seconds that replaying a captured function takes above the kernels' own: for each kernel, and for each call."
    def part(start):
        from tinylit import Tensor, jit
        x, w = (Tensor.full(shape, 1 / size).contiguous().realize() for shape in (size, (size, size)))
        def replayed(kernels):
            @jit
            def f(x):
                for _ in range(kernels): x = w @ x                  # each waits for all of the last
                return x
            f(x)
            schedule, B, N = launched(lambda: f(x))
            assert len(schedule.kernels) == kernels
            threads = schedule.unit[1]
            return least(lambda: f(x)), own_time(schedule, B, N, threads), threads
        (one, own, _), (many, own_many, threads) = replayed(1), replayed(100)
        kernel = (many - one - (own_many - own)) / 99
        return {"own": own_many / 100, "kernel": kernel, "call": one - own - kernel, "threads": threads}
    return part


def memory(start):
    "Bytes that the device gave out at the worst moment of a CNN step, and the least that its schedule could do with."
    import peers.tinylit as peer
    from tinylit.backend.device import HostDevice
    from tinylit.compiler.realize import lifetimes
    from tinylit.graph.op import Op
    from workloads import BY_NAME
    held = most = 0
    def alloc(device, nbytes, plain=HostDevice.alloc):
        nonlocal held, most
        held += nbytes
        most = max(most, held)
        return plain(device, nbytes)
    def free(device, handle, nbytes, plain=HostDevice.free):
        nonlocal held
        held -= nbytes
        plain(device, handle, nbytes)
    HostDevice.alloc, HostDevice.free = alloc, free
    w = BY_NAME["CNN step on MNIST"]
    step = getattr(peer, w.kind)(w.run, *w.given())
    step()
    most = held
    schedule, _, _ = launched(step)
    kernels = [k.kernel for k in schedule.kernels]
    fixed = {n for k in kernels for n in k.buffers if n.op is Op.BUFFER} | set(schedule.made)
    lives = lifetimes(kernels, fixed).values()
    bound = max(sum(size for size, first, last in lives if first <= t <= last) for t in range(len(kernels)))
    rest = sum(n.numel * n.dtype.itemsize for n in fixed)
    return {"peak": most, "bound": bound + rest, "ratio": most / (bound + rest), "arena": schedule.arena, "live": bound,
            "weights and results": rest, "kernels": len(kernels)}


PARTS = {
    "import": importing, "matmul": matmul, "MLP": training("MLP step"), "CNN": training("CNN step on MNIST"),
    **{f"{f.__name__} {n}": graph(f, n) for f in (chain, network) for n in (1000, 10_000)},
    "replay": replay(8), "replay on threads": replay(128), "memory": memory,
}


if __name__ == "__main__":
    answer = PARTS[sys.argv[1]](float(sys.argv[2]))
    import json
    print(json.dumps(answer))
