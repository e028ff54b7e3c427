"PyTorch as it runs without compiling."
import numpy as np
import torch
import torch.nn.functional as functional
from types import SimpleNamespace

name, version = "torch", torch.__version__
def sum_of(x, axis): return x.sum() if axis is None else x.sum(axis)
def conv2d(x, w, b, padding, stride=1): return functional.conv2d(x, w, b, stride, padding)


def attention_with(cache, i, position, q, k, v):
    "A slice of the memory of fixed size takes what is new; a slice of it is read."
    for old, new in zip(cache[i], (k, v)): old[:, :, position:position + 1] = new
    return functional.scaled_dot_product_attention(q, *(c[:, :, :position + 1] for c in cache[i]))


F = SimpleNamespace(
    relu=torch.relu, gelu=lambda x: functional.gelu(x, approximate="tanh"), sum=sum_of, max=torch.amax,
    argmax=torch.argmax, softmax=lambda x: torch.softmax(x, 1), flatten=lambda x: x.flatten(1), conv2d=conv2d,
    layer_norm=lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b), 
    max_pool=lambda x, size=2, stride=2, padding=0: functional.max_pool2d(x, size, stride, padding),
    batch_norm=lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
    kept_norm=lambda x, w, b, mean, var: functional.batch_norm(x, mean, var, w, b), mean=torch.mean,
    take=lambda table, i: functional.embedding(i, table), row=lambda table, i: table[i], reshape=torch.reshape,
    permute=torch.permute, split=lambda x, n: x.chunk(n, -1), attention_with=attention_with,
    attention=lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    cross_entropy=functional.cross_entropy)


def place(i: int): return i
def compiled(f): return f


def forward(run, arrays):
    xs = list(map(torch.from_numpy, arrays))
    f = compiled(lambda *xs: run(F, *xs))
    def call():
        with torch.no_grad(): return f(*xs)
    return call


def inference(run, parameters, *arrays):
    f, p = compiled(lambda p, *xs: run(F, p, *xs)), list(map(torch.from_numpy, parameters))
    xs = list(map(torch.from_numpy, arrays))
    def call():
        with torch.no_grad(): return f(p, *xs)
    return call


def decoding(run, parameters, token, position, cache):
    f, p = compiled(lambda *xs: run(F, *xs)), list(map(torch.from_numpy, parameters))
    token, position, cache = torch.from_numpy(token), place(position), [list(map(torch.from_numpy, c)) for c in cache]
    def call():
        with torch.no_grad(): return f(p, token, position, cache)
    return call


def backward(run, arrays, wrt, seed):
    xs = [torch.from_numpy(a).requires_grad_(i in wrt) for i, a in enumerate(arrays)]
    f, g = compiled(lambda *xs: run(F, *xs)), torch.from_numpy(seed)
    def call():
        y = f(*xs)
        return (y, *torch.autograd.grad(y, [xs[i] for i in wrt], g))
    return call


def training(run, parameters, x, y):
    p, x, y = [torch.from_numpy(a).requires_grad_() for a in parameters], torch.from_numpy(x), torch.from_numpy(y).long()
    optimizer = torch.optim.Adam(p, lr=0.001)
    loss_of = compiled(lambda p, x, y: run(F, p, x, y))
    def call():
        optimizer.zero_grad()
        loss = loss_of(p, x, y)
        loss.backward()
        optimizer.step()
        return loss.item()
    return call
