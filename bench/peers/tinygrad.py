"tinygrad with its jit, on its CPU device."
from types import SimpleNamespace
import importlib.metadata
from tinygrad import Device, Tensor, TinyJit, Variable
from tinygrad.helpers import Context
from tinygrad.nn.optim import Adam

name, version = "tinygrad", importlib.metadata.version("tinygrad")


def batch_norm(x, w, b):
    mean = x.mean((0, 2, 3), keepdim=True)
    var = (x - mean).square().mean((0, 2, 3), keepdim=True)
    return (x - mean) * (var + 1e-5).rsqrt() * w.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)


def kept_norm(x, w, b, mean, var):
    return x.batchnorm(w, b, mean, (var + 1e-5).rsqrt())


def attention_with(cache, i, position, q, k, v):
    "A slice of the memory of fixed size takes what is new; a slice of it is read."
    for old, new in zip(cache[i], (k, v)): old.shrink((None, None, (position, position + 1), None)).assign(new).realize()
    return q.scaled_dot_product_attention(*(c.shrink((None, None, (0, position + 1), None)) for c in cache[i]))


F = SimpleNamespace(
    relu=Tensor.relu, gelu=Tensor.gelu, sum=Tensor.sum, max=Tensor.max, argmax=Tensor.argmax,
    softmax=lambda x: x.softmax(1), layer_norm=lambda x, w, b: x.layernorm() * w + b, batch_norm=batch_norm,
    conv2d=lambda x, w, b, padding, stride=1: x.conv2d(w, b, padding=padding, stride=stride),
    max_pool=lambda x, size=2, stride=2, padding=0: x.max_pool2d((size, size), stride, padding=padding),
    flatten=lambda x: x.flatten(1), cross_entropy=lambda x, y: x.sparse_categorical_crossentropy(y),
    kept_norm=kept_norm, mean=Tensor.mean, take=lambda table, i: table[i], reshape=Tensor.reshape, permute=Tensor.permute,
    row=lambda table, i: table.shrink(((i, i + 1), None)), split=lambda x, n: x.chunk(n, -1), attention_with=attention_with,
    attention=lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True))


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


def inference(run, parameters, *arrays):
    p, xs = ([Tensor(a).realize() for a in some] for some in (parameters, arrays))
    f = TinyJit(lambda *xs: run(F, p, *xs).realize())
    return waiting(lambda: f(*xs))


def decoding(run, parameters, token, position, cache):
    p, cache = ([Tensor(a).realize() for a in some] for some in (parameters, [a for pair in cache for a in pair]))
    cache, token = list(zip(cache[::2], cache[1::2])), Tensor(token).realize()
    place = Variable("place", 1, cache[0][0].shape[2] - 1).bind(position)
    f = TinyJit(lambda token, place: run(F, p, token, place, cache).realize())
    return waiting(lambda: f(token, place))


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
