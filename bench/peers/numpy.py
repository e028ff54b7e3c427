"numpy: what people write without a framework. No gradients, no convolutions."
from types import SimpleNamespace
import numpy as np

name, version = "numpy", np.__version__


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def layer_norm(x, w, b):
    x = x - x.mean(1, keepdims=True)
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w + b


F = SimpleNamespace(
    relu=lambda x: np.maximum(x, 0), sum=np.sum, max=np.max, argmax=np.argmax, softmax=softmax, layer_norm=layer_norm,
    gelu=lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x))))


def forward(run, arrays): return lambda: run(F, *arrays)
