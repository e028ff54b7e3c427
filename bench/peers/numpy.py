"numpy: what people write without a framework. No gradients, no convolutions."
from types import SimpleNamespace
import numpy as np

name, version = "numpy", np.__version__


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x, w, b):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w + b


def attention(q, k, v):
    "The last query asks all keys, the others do not see what comes after them."
    scores, (n, m) = q @ k.swapaxes(2, 3) * np.float32(q.shape[3]**-0.5), (q.shape[2], k.shape[2])
    return softmax(np.where(np.tri(n, m, m - n, bool), scores, np.float32(-np.inf))) @ v


def attention_with(cache, i, position, q, k, v):
    "A slice of the memory of fixed size takes what is new; a slice of it is read."
    for old, new in zip(cache[i], (k, v)): old[:, :, position] = new[:, :, 0]
    return attention(q, *(c[:, :, :position + 1] for c in cache[i]))


F = SimpleNamespace(
    relu=lambda x: np.maximum(x, 0), sum=np.sum, max=np.max, argmax=np.argmax, softmax=softmax, layer_norm=layer_norm,
    take=lambda table, i: table[i], row=lambda table, i: table[i], reshape=np.reshape, permute=np.transpose,
    split=lambda x, n: np.split(x, n, -1), attention=attention, attention_with=attention_with,
    gelu=lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))))


def forward(run, arrays): return lambda: run(F, *arrays)
def inference(run, parameters, *arrays): return lambda: run(F, parameters, *arrays)
def decoding(run, parameters, token, position, cache): return lambda: run(F, parameters, token, position, cache)
