"JAX: traced and compiled by XLA."
from types import SimpleNamespace
import jax
import jax.numpy as jnp
from jax import lax

name, version = "jax", jax.__version__


def conv2d(x, w, b, padding, stride=1):
    y = lax.conv_general_dilated(x, w, (stride, stride), [(padding, padding)] * 2)
    return y if b is None else y + b[:, None, None]


def layer_norm(x, w, b):
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w + b


def batch_norm(x, w, b):
    mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * w[:, None, None] + b[:, None, None]


def kept_norm(x, w, b, mean, var):
    mean, scale, shift = (v[:, None, None] for v in (mean, w * lax.rsqrt(var + 1e-5), b))
    return (x - mean) * scale + shift


def max_pool(x, size=2, stride=2, padding=0):
    pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, size, size), (1, 1, stride, stride), pads)


def attention(q, k, v, **how):
    "JAX wants the heads after the places."
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, **how).swapaxes(1, 2)


def attention_with(cache, i, position, q, k, v):
    "Memory of fixed size, all of it read; a mask hides what is later."
    cache[i] = [lax.dynamic_update_slice_in_dim(old, new, position, 2) for old, new in zip(cache[i], (k, v))]
    return attention(q, *cache[i], mask=(jnp.arange(cache[i][0].shape[2]) <= position)[None, None, None])


def cross_entropy(x, y): return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean()
F = SimpleNamespace(
    relu=jax.nn.relu, gelu=lambda x: jax.nn.gelu(x, approximate=True), sum=jnp.sum, max=jnp.max, argmax=jnp.argmax,
    softmax=lambda x: jax.nn.softmax(x, 1), layer_norm=layer_norm, conv2d=conv2d, batch_norm=batch_norm,
    flatten=lambda x: x.reshape(len(x), -1), cross_entropy=cross_entropy, max_pool=max_pool, kept_norm=kept_norm,
    mean=jnp.mean, take=lambda table, i: table[i], row=lambda table, i: table[i], reshape=jnp.reshape,
    permute=jnp.transpose, split=lambda x, n: jnp.split(x, n, -1), attention_with=attention_with,
    attention=lambda q, k, v: attention(q, k, v, is_causal=True))


def forward(run, arrays):
    xs, f = list(map(jnp.asarray, arrays)), jax.jit(lambda *xs: run(F, *xs))
    return lambda: jax.block_until_ready(f(*xs))


def inference(run, parameters, *arrays):
    p, xs, f = list(map(jnp.asarray, parameters)), list(map(jnp.asarray, arrays)), jax.jit(lambda p, *xs: run(F, p, *xs))
    return lambda: jax.block_until_ready(f(p, *xs))


def decoding(run, parameters, token, position, cache):
    p, token, position, cache = jax.tree.map(jnp.asarray, (parameters, token, position, cache))
    def step(cache, p, token, position):
        cache = list(cache)
        return run(F, p, token, position, cache), cache
    step = jax.jit(step, donate_argnums=0)
    def call():
        nonlocal cache
        y, cache = step(cache, p, token, position)
        return jax.block_until_ready(y)
    return call


def backward(run, arrays, wrt, seed):
    def both(xs, g):
        def of(*some): return run(F, *(some[wrt.index(i)] if i in wrt else x for i, x in enumerate(xs)))
        y, vjp = jax.vjp(of, *(xs[i] for i in wrt))
        return (y, *vjp(g))
    f, xs, g = jax.jit(both), list(map(jnp.asarray, arrays)), jnp.asarray(seed)
    return lambda: jax.block_until_ready(f(xs, g))


def training(run, parameters, x, y):
    p, x, y = list(map(jnp.asarray, parameters)), jnp.asarray(x), jnp.asarray(y)
    state = [p, [jnp.zeros_like(a) for a in p], [jnp.zeros_like(a) for a in p], jnp.zeros(())]
    def step(state, x, y):
        p, m, v, t = state
        loss, g = jax.value_and_grad(lambda p: run(F, p, x, y))(p)
        t = t + 1
        m = [0.9 * a + 0.1 * b for a, b in zip(m, g)]
        v = [0.999 * a + 0.001 * b * b for a, b in zip(v, g)]
        p = [a - 0.001 * (b / (1 - 0.9**t)) / (jnp.sqrt(c / (1 - 0.999**t)) + 1e-8) for a, b, c in zip(p, m, v)]
        return loss, [p, m, v, t]
    step = jax.jit(step, donate_argnums=0)
    def call():
        nonlocal state
        loss, state = step(state, x, y)
        return float(loss)
    return call
