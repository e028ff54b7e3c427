"tinygrad with its jit, on its CPU device."
from types import SimpleNamespace
import importlib.metadata
from tinygrad import Device, Tensor, TinyJit
from tinygrad.helpers import Context
from tinygrad.nn.optim import Adam

name, version = "tinygrad", importlib.metadata.version("tinygrad")


def batch_norm(x, w, b):
    mean = x.mean((0, 2, 3), keepdim=True)
    var = (x - mean).square().mean((0, 2, 3), keepdim=True)
    return (x - mean) * (var + 1e-5).rsqrt() * w.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)


F = SimpleNamespace(
    relu=Tensor.relu, gelu=Tensor.gelu, sum=Tensor.sum, max=Tensor.max, argmax=Tensor.argmax,
    softmax=lambda x: x.softmax(1), layer_norm=lambda x, w, b: x.layernorm() * w + b, batch_norm=batch_norm,
    conv2d=lambda x, w, b, padding: x.conv2d(w, b, padding=padding), max_pool=lambda x: x.max_pool2d(),
    flatten=lambda x: x.flatten(1), cross_entropy=lambda x, y: x.sparse_categorical_crossentropy(y))


def waiting(f):
    "`f`, which then waits until the result is there."
    def call():
        y = f()
        Device[Device.DEFAULT].synchronize()
        return y
    return call


def forward(run, arrays):
    xs = [Tensor(a).realize() for a in arrays]
    f = TinyJit(lambda *xs: run(F, *xs).realize())
    return waiting(lambda: f(*xs))


def backward(run, arrays, wrt, seed):
    xs, g = [Tensor(a).realize() for a in arrays], Tensor(seed).realize()
    @TinyJit
    def both(g, *xs):
        y = run(F, *xs)
        out = (y, *y.gradient(*(xs[i] for i in wrt), gradient=g))
        Tensor.realize(*out)
        return out
    return waiting(lambda: both(g, *xs))


def training(run, parameters, x, y):
    p, x, y = [Tensor(a).realize() for a in parameters], Tensor(x).realize(), Tensor(y).realize()
    optimizer = Adam(p, lr=0.001)
    @TinyJit
    def step(x, y):
        optimizer.zero_grad()
        loss = run(F, p, x, y)
        loss.backward()
        return loss.realize(*optimizer.schedule_step())
    def call():
        with Context(TRAINING=1): return step(x, y).item()
    return call
