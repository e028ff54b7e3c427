"Layers and optimizers against their formulas, computed by numpy in float64."
import math

import numpy as np
import pytest

from tinylit import nn
from tinylit.graph.node import toposort
from tinylit.nn import optim
from tinylit.nn.state import load_state_dict
from tinylit.tensor import Tensor


def noise(*shape, seed=0): return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def close(x, expected, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(x.numpy().astype(np.float64), expected, rtol, atol)


class Net:
    "Nested in every way that parameters are found."
    def __init__(self):
        self.layers = [nn.Linear(3, 4), Tensor.relu, {"norm": nn.BatchNorm(4), "drop": (nn.Dropout(0.5),)}]
        self.tied = self.layers[0].weight
        self.me, self.name, self.count = self, "net", 3
    def __call__(self, x):
        h = self.layers[2]["norm"](self.layers[0](x).relu())
        return self.layers[2]["drop"][0](h)


# --- layers ---

def test_linear(device):
    layer, x = nn.Linear(5, 3), noise(2, 4, 5)
    close(layer(Tensor(x)), x.astype("d") @ layer.weight.numpy().T + layer.bias.numpy())
    assert nn.Linear(5, 3, bias=False).bias is None


@pytest.mark.parametrize("make, fan_in", [(lambda: nn.Linear(400, 300), 400), (lambda: nn.Conv2d(32, 64, 5, groups=2), 400)])
def test_initial_weights_are_uniform_and_scaled_by_what_comes_in(device, make, fan_in):
    layer, bound = make(), 1 / math.sqrt(fan_in)
    for t in (layer.weight, layer.bias):
        w = t.numpy()
        assert abs(w).max() <= bound and w.min() < -0.9 * bound and w.max() > 0.9 * bound
    assert layer.weight.numpy().std() == pytest.approx(bound / math.sqrt(3), rel=0.02)


def test_conv2d_passes_its_settings_on(device):
    layer, x = nn.Conv2d(2, 4, (3, 2), stride=2, padding=1, groups=2, bias=False), Tensor(noise(1, 2, 6, 6))
    close(layer(x), x.conv2d(layer.weight, None, 2, 1, 1, 2).numpy())
    with pytest.raises(ValueError, match="groups"): nn.Conv2d(3, 4, 3, groups=2)


def test_layer_norm(device):
    x, layer = noise(3, 4, 5) * 3 + 7, nn.LayerNorm((4, 5))
    layer.weight.assign(noise(4, 5, seed=1))
    layer.bias.assign(noise(4, 5, seed=2))
    d = x - x.astype("d").mean((1, 2), keepdims=True)
    expected = d / np.sqrt((d * d).mean((1, 2), keepdims=True) + 1e-5) * layer.weight.numpy() + layer.bias.numpy()
    close(layer(Tensor(x)), expected, 1e-4, 1e-5)
    with pytest.raises(ValueError, match=r"\(4, 5\).*\(2, 5\)"): layer(Tensor.zeros(2, 5))


@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5, 6)])
def test_batch_norm(device, shape):
    x, layer, axes = noise(*shape) * 2 + 5, nn.BatchNorm(3), (0, *range(2, len(shape)))
    layer.weight.assign([1.0, 2.0, 3.0])
    layer.bias.assign([0.5, 0.0, -1.0])
    at = lambda v: np.asarray(v, "d").reshape(-1, *[1] * (len(shape) - 2))
    mean, var = x.astype("d").mean(axes), x.astype("d").var(axes)
    expected = (x - at(mean)) / np.sqrt(at(var) + 1e-5) * at([1, 2, 3]) + at([0.5, 0, -1])
    close(layer(Tensor(x)), expected, 1e-4, 1e-4)
    n = x.size // 3
    rm, rv = 0.1 * mean, 0.9 + 0.1 * var * n / (n - 1)
    close(layer.running_mean, rm, 1e-4)
    close(layer.running_var, rv, 1e-4)
    nn.train(layer, False)
    close(layer(Tensor(x)), (x - at(rm)) / np.sqrt(at(rv) + 1e-5) * at([1, 2, 3]) + at([0.5, 0, -1]), 1e-4, 1e-4)
    close(layer.running_mean, rm, 1e-4)                                    # not moved when not trained


def test_batch_norm_gradient(device):
    x, g = noise(6, 2).astype("d"), noise(6, 2, seed=1).astype("d")
    t, layer = Tensor(x, requires_grad=True), nn.BatchNorm(2)
    (layer(t) * Tensor(g)).sum().backward()
    r = 1 / np.sqrt(x.var(0) + 1e-5)
    xhat = (x - x.mean(0)) * r
    close(t.grad, r * (g - g.mean(0) - xhat * (g * xhat).mean(0)), 1e-4, 1e-5)


def test_embedding(device):
    layer = nn.Embedding(10, 4)
    index = np.array([[1, 9], [0, 1]], "i4")
    close(layer(Tensor(index)), layer.weight.numpy()[index])
    layer(Tensor(index)).sum().backward()
    assert layer.weight.grad.sum(1).tolist() == [4, 8, 0, 0, 0, 0, 0, 0, 0, 4]


def test_dropout(device):
    Tensor.manual_seed(3)
    layer, x = nn.Dropout(0.25), Tensor.ones(100, 100)
    y = layer(x).numpy()
    assert set(np.unique(y.round(4))) == {0, round(np.float32(4 / 3), 4)} and abs((y == 0).mean() - 0.25) < 0.02
    assert layer(x.half()).dtype is x.half().dtype
    assert (layer(x).numpy() != y).any()                                   # other elements each time
    assert nn.train(layer, False)(x) is x and nn.Dropout(0.0)(x) is x
    with pytest.raises(ValueError, match="1.5"): nn.Dropout(1.5)(x)


def test_parameters_are_found_wherever_they_stand(device):
    net = Net()
    names = ["layers.0.weight", "layers.0.bias", "layers.2.norm.weight", "layers.2.norm.bias",
             "layers.2.norm.running_mean", "layers.2.norm.running_var", "tied"]
    assert list(nn.state_dict(net)) == names
    assert [p.shape for p in nn.parameters(net)] == [(4, 3), (4,), (4,), (4,)]      # tied ones once, statistics not
    nn.train(net, False)
    assert not net.layers[2]["norm"].training and not net.layers[2]["drop"][0].training
    assert nn.train(net) is net and net.layers[2]["norm"].training
    model = nn.Sequential(nn.Linear(2, 3), Tensor.relu, nn.Linear(3, 1))
    assert list(nn.state_dict(model)) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert model(Tensor.zeros(5, 2)).shape == (5, 1)


# --- optimizers ---

def sgd(p, grads, lr, momentum=0, decay=0, nesterov=False):
    v = 0
    for g in grads:
        g = g + decay * p
        v = momentum * v + g
        p = p - lr * (g + momentum * v if nesterov else v)
    return p


def adam(p, grads, lr, b1=0.9, b2=0.999, eps=1e-8, decay=0, decoupled=False):
    m = v = 0
    for t, g in enumerate(grads, 1):
        if decoupled: p = p - lr * decay * p
        else: g = g + decay * p
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        p = p - lr * (m / (1 - b1 ** t)) / (np.sqrt(v / (1 - b2 ** t)) + eps)
    return p


CASES = {
    "sgd": (optim.SGD, dict(lr=0.1), sgd, {}),
    "momentum": (optim.SGD, dict(lr=0.1, momentum=0.9), sgd, {}),
    "nesterov": (optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True), sgd, {}),
    "decay": (optim.SGD, dict(lr=0.1, momentum=0.5, weight_decay=0.1), sgd, {}),
    "adam": (optim.Adam, dict(lr=0.01), adam, {}),
    "adam decay": (optim.Adam, dict(lr=0.01, weight_decay=0.1), adam, {}),
    "adamw": (optim.AdamW, dict(lr=0.01), adam, dict(weight_decay=0.01, decoupled=True)),
    "adamw decay": (optim.AdamW, dict(lr=0.05, betas=(0.8, 0.99), weight_decay=0.3), adam, dict(decoupled=True)),
}


@pytest.mark.parametrize("size", [1, 10, 17, 40])
@pytest.mark.parametrize("name", CASES)
def test_steps_follow_the_papers(device, name, size):
    make, options, formula, more = CASES[name]
    start, grads = noise(size), [noise(size, seed=s) for s in range(1, 9)]
    p = Tensor(start, requires_grad=True)
    o = make([p], **options)
    for g in grads:
        o.zero_grad()
        (p * Tensor(g)).sum().backward()
        o.step()
    options = {**options, **more}
    if "betas" in options: options["b1"], options["b2"] = options.pop("betas")
    if "weight_decay" in options: options["decay"] = options.pop("weight_decay")
    close(p, formula(start.astype("d"), [g.astype("d") for g in grads], **options), 1e-5, 1e-6)


def test_the_first_adam_step_is_as_long_as_the_learning_rate(device):
    for scale in (1e-3, 1.0, 1e4):
        p = Tensor([1.0, -2.0], requires_grad=True)
        o = optim.Adam([p], lr=0.01)
        (p * Tensor([scale, -scale])).sum().backward()
        o.step()
        close(p, [0.99, -1.99], 1e-4)


def test_a_new_learning_rate_counts_from_the_next_step(device):
    p = Tensor(1.0, requires_grad=True)
    o = optim.SGD([p], lr=0.1)
    for lr, expected in ((0.1, 0.9), (0.5, 0.4), (0.0, 0.4)):
        o.lr = lr
        o.zero_grad()
        (p * 1).backward()
        o.step()
        assert p.item() == pytest.approx(expected, rel=1e-5) and o.lr.item() == pytest.approx(lr)


def test_parameters_without_gradient_rest(device):
    a, b = Tensor(1.0, requires_grad=True), Tensor(1.0, requires_grad=True)
    o = optim.SGD([a, b, a], lr=1.0)
    assert len(o.params) == 2
    (a * 0.5).backward()
    o.step()
    assert (a.item(), b.item()) == (0.5, 1.0)
    o.zero_grad()
    assert a.grad is None
    with pytest.raises(ValueError, match="backward"): o.step()
    with pytest.raises(ValueError, match="requires_grad"): optim.SGD([Tensor(1.0)])
    with pytest.raises(ValueError, match="requires_grad"): optim.Adam([])
    with pytest.raises(ValueError, match="momentum"): optim.SGD([a], nesterov=True)


def test_a_step_computes_and_forgets(device):
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), Tensor.relu, nn.Linear(8, 2))
    o = optim.Adam(nn.parameters(net), lr=0.01)
    x, y = Tensor(noise(16, 4)), Tensor(np.arange(16) % 2)
    losses = []
    for _ in range(60):
        o.zero_grad()
        loss = net(x).cross_entropy(y).backward()
        o.step()
        losses.append(loss.item())
        for t in (*nn.state_dict(net).values(), *o.m, *o.weights): assert t.buffer is not None and len(toposort(t.node)) <= 2
    assert losses[-1] < 0.5 * losses[0]


def test_half_floats_train_with_wide_state(device):
    p = Tensor([1.0, 2.0], dtype="float16", requires_grad=True)
    o = optim.Adam([p], lr=0.125)
    (p * p).sum().backward()
    o.step()
    assert p.dtype.name == "float16" and o.m[0].dtype.name == "float32"
    close(p, [0.875, 1.875], 1e-3)


MISTAKES = [
    (lambda: nn.BatchNorm(3)(Tensor.ones(2, 4)), r"BatchNorm of \(3,\).*\(2, 4\)"),
    (lambda: nn.BatchNorm(3)(Tensor.ones(3)), r"BatchNorm of \(3,\).*\(3,\)"),
    (lambda: nn.Conv2d(3, 4, 0), "positive"), (lambda: nn.Conv2d(3, 4, 3, groups=0), "positive"),
    (lambda: nn.Conv2d(3, 4, 3, groups=2), "multiples of 2"), (lambda: nn.Linear(-1, 2), r"\(2, -1\)")]


@pytest.mark.parametrize("wrong, words", MISTAKES)
def test_a_layer_that_cannot_be_says_why(wrong, words):
    with pytest.raises(ValueError, match=words): wrong()


def test_products_in_a_convolution_are_as_wide_as_their_sum(device):
    x, w = (Tensor([[[[300.0, v]]]], dtype="float16") for v in (-300.0, 300.0))
    assert x.conv2d(w).item() == 0 and x.conv2d(w).dtype.name == "float16"


@pytest.mark.parametrize("wrong", [2, -1, -100])
def test_a_class_number_that_is_none_makes_the_loss_nan(wrong):
    scores = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert np.isnan(scores.cross_entropy(Tensor([0, wrong])).item())
    assert np.isfinite(scores.cross_entropy(Tensor([0, 1])).item())


def test_misuse_of_layers_optimizers_and_states_is_named():
    weight = Tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ValueError, match="probability 2.0"): nn.Dropout(2.0)
    for params in (weight, [3.0], [weight * 2], [weight[0]], []):           # a tensor is no list of leaves
        with pytest.raises(ValueError, match="requires_grad=True"): optim.SGD(params)
    with pytest.raises(TypeError, match="load_state_dict of 3"): load_state_dict(nn.Linear(2, 2), {"weight": 3, "bias": 4})
