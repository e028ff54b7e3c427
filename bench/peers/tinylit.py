"tinylit with its jit, on its default device, without search."
from types import SimpleNamespace
import tinylit
from tinylit import Tensor, jit
from tinylit.nn import layer_norm
from tinylit.nn.optim import Adam

name, version = "tinylit", tinylit.__version__


def batch_norm(x, w, b):
    mean = x.mean((0, 2, 3), keepdim=True)
    var = (x - mean).square().mean((0, 2, 3), keepdim=True)
    return (x - mean) * (var + 1e-5).rsqrt() * w.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)


def kept_norm(x, w, b, mean, var):
    scale = w * (var + 1e-5).rsqrt()
    return (x - mean.reshape(-1, 1, 1)) * scale.reshape(-1, 1, 1) + b.reshape(-1, 1, 1)


def split(x, n):
    size = x.shape[-1] // n
    return [x[..., i * size:(i + 1) * size] for i in range(n)]


def attention_with(cache, i, position, q, k, v):
    "Memory of fixed size, all of it read; a mask hides what is later."
    keys, values = cache[i]
    keys[:, :, position], values[:, :, position] = k[:, :, 0], v[:, :, 0]
    return q.attention(keys, values, Tensor.arange(keys.shape[2]) <= position)


F = SimpleNamespace(
    relu=lambda x: x.relu(), gelu=lambda x: x.gelu(), sum=lambda x, axis: x.sum(axis), max=lambda x, axis: x.max(axis),
    argmax=lambda x, axis: x.argmax(axis), softmax=lambda x: x.softmax(1), layer_norm=lambda x, w, b: layer_norm(x) * w + b,
    batch_norm=batch_norm, conv2d=lambda x, w, b, padding, stride=1: x.conv2d(w, b, stride, padding),
    max_pool=lambda x, size=2, stride=2, padding=0: x.max_pool2d(size, stride, padding), flatten=lambda x: x.flatten(1),
    cross_entropy=lambda x, y: x.cross_entropy(y), kept_norm=kept_norm, mean=lambda x, axes: x.mean(axes),
    take=lambda table, i: table[i], row=lambda table, i: table[i], reshape=lambda x, shape: x.reshape(shape),
    permute=lambda x, order: x.permute(order), split=split,
    attention=lambda q, k, v: q.attention(k, v, causal=True), attention_with=attention_with)


def forward(run, arrays):
    xs, f = [Tensor(a).realize() for a in arrays], jit(lambda *xs: run(F, *xs))
    return lambda: f(*xs)


def inference(run, parameters, *arrays):
    p, xs = ([Tensor(a).realize() for a in some] for some in (parameters, arrays))
    f = jit(lambda *xs: run(F, p, *xs))
    return lambda: f(*xs)


def decoding(run, parameters, token, position, cache):
    p, token = [Tensor(a).realize() for a in parameters], Tensor(token).realize()
    cache = [[Tensor(a).realize() for a in pair] for pair in cache]
    f, last = jit(lambda token, position: run(F, p, token, position, cache)), cache[0][0].shape[2] - 1
    return lambda: f(token, Tensor.variable(position, 0, last))


def backward(run, arrays, wrt, seed):
    @jit
    def both(g, *xs):
        y = run(F, *xs)
        return (y, *(y * g).sum().gradient(*(xs[i] for i in wrt)))
    xs, g = [Tensor(a).realize() for a in arrays], Tensor(seed).realize()
    return lambda: both(g, *xs)


def training(run, parameters, x, y):
    p, x, y = [Tensor(a, requires_grad=True) for a in parameters], Tensor(x).realize(), Tensor(y).realize()
    optimizer = Adam(p, lr=0.001)
    @jit
    def step(x, y):
        optimizer.zero_grad()
        loss = run(F, p, x, y)
        loss.backward()
        optimizer.step()
        return loss
    return lambda: step(x, y).item()
