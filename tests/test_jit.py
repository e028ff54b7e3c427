"A captured function does what the plain one does, every time."
import numpy as np
import pytest

from tinylit import Tensor
from tinylit import jit
from tinylit import nn
from tinylit.nn import optim

NETS = {
    "plain": lambda: nn.Sequential(nn.Linear(6, 8), Tensor.relu, nn.Linear(8, 3)),
    "normalized": lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm(8), Tensor.relu, nn.Linear(8, 8), nn.BatchNorm(8),
                                        nn.Linear(8, 3)),
    "noisy": lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), Tensor.tanh, nn.LayerNorm(8), nn.Linear(8, 3)),
}
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.1), "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: optim.Adam(p, 0.01), "adamw": lambda p: optim.AdamW(p, 0.01)}


def noise(*shape, seed=0): return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def training(net, make, wrap):
    "Losses of ten steps whose rate changes half way, and everything the network and the optimizer hold."
    Tensor.manual_seed(1)
    model = NETS[net]()
    opt = OPTIMIZERS[make](nn.parameters(model))
    def step(x, y):
        opt.zero_grad()
        loss = model(x).cross_entropy(y).backward()
        opt.step()
        return loss
    step, losses = wrap(step), []
    for i in range(10):
        if i == 5: opt.lr = 0.02
        losses.append(step(Tensor(noise(8, 6, seed=i)), Tensor(np.arange(8) % 3)))
    state = {name: t.numpy() for name, t in nn.state_dict([model, opt]).items()}
    return [loss.item() for loss in losses], state                        # read late: each kept its own


@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_ten_captured_steps_equal_ten_plain_ones(device, net, make):
    losses, state = training(net, make, lambda f: f)
    captured, captured_state = training(net, make, jit)
    np.testing.assert_allclose(captured, losses, 1e-5, 1e-6)
    for name in state: np.testing.assert_allclose(captured_state[name], state[name], 1e-4, 1e-5, err_msg=name)


def test_results_stay_what_they_were(device):
    @jit
    def f(x): return x * 2 + 1
    kept = [f(Tensor([float(i)])) for i in range(3)]
    for i in range(5): f(Tensor([100.0 + i]))
    assert [k.item() for k in kept] == [1, 3, 5]


def test_new_shapes_dtypes_and_numbers_are_captured_anew(device):
    @jit
    def f(x, n): return x * n
    assert f(Tensor([1.0, 2.0]), 3).tolist() == [3, 6] and f(Tensor([1.0, 2.0]), 4).tolist() == [4, 8]
    assert f(Tensor([1.0]), 3).tolist() == [3] and f(Tensor([1, 2]), 3).tolist() == [3, 6]
    assert f(Tensor([5.0, 6.0]), 3).tolist() == [15, 18] and f(Tensor([1, 2]), 3).dtype.is_int
    assert f(Tensor([1.0, 2.0]), n=2.5).tolist() == [2.5, 5]


def test_arguments_may_be_the_same_or_the_last_result(device):
    @jit
    def f(a, b): return a * 10 + b
    x, y = Tensor([1.0]), Tensor([2.0])
    assert f(x, y).item() == 12 and f(x, x).item() == 11 and f(y, x).item() == 21
    state = Tensor([1.0])
    for _ in range(4): state = f(state, y)
    assert state.item() == 12222 and f(state, state).item() == 134442


def test_assigned_arguments_and_captured_tensors(device):
    total, zero = Tensor([0.0]), Tensor([0.0])
    @jit
    def add(x):
        total.assign(total + x)
        return total * 2
    assert [add(Tensor([float(i)])).item() for i in range(4)] == [0, 2, 6, 12]
    assert total.tolist() == [6] and zero.tolist() == [0]
    total.assign([100.0])
    assert add(Tensor([1.0])).item() == 202 and total.tolist() == [101]
    view = total[:]
    old = total + 0
    add(Tensor([1.0]))
    assert view.tolist() == [102] and old.tolist() == [101]


def test_equal_tensors_are_assigned_apart(device):
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    @jit
    def f(x):
        a.assign(a + x)
        b.assign(b - x)
        return a + b
    for _ in range(3): assert f(Tensor([1.0, 2.0, 3.0])).tolist() == [0, 0, 0]
    assert a.tolist() == [3, 6, 9] and b.tolist() == [-3, -6, -9]


def test_random_numbers_go_on(device):
    def draws(wrap):
        Tensor.manual_seed(5)
        f = wrap(lambda x: x + Tensor.rand(3))
        return [f(Tensor([0.0, 0.0, 0.0])).tolist() for _ in range(3)], Tensor.rand(2).tolist()
    assert draws(jit) == draws(lambda f: f)


def test_a_tensor_that_was_replaced_is_noticed(device):
    box = {"w": Tensor([1.0])}
    @jit
    def f(x): return x * box["w"]
    assert f(Tensor([2.0])).item() == 2
    box["w"] = Tensor([10.0])
    assert f(Tensor([2.0])).item() == 20


def test_nothing_is_read_inside(device):
    if device == "numpy": pytest.skip("an interpreter calls the function itself")
    @jit
    def f(x): return x * x.sum().item()
    with pytest.raises(RuntimeError, match="captured"): f(Tensor([1.0]))
    assert (Tensor([1.0]) + 1).item() == 2                                 # and afterwards all is well


def test_methods_and_nested_arguments(device):
    class Model:
        def __init__(self, k): self.w = Tensor([k])
        @jit
        def run(self, batch): return {"y": batch["x"] * self.w, "pair": (batch["x"], self.w + batch["more"][0])}
    one, two = Model(2.0), Model(3.0)
    for k in (1.0, 5.0):
        batch = {"x": Tensor([k]), "more": [Tensor([1.0])]}
        assert one.run(batch)["y"].item() == 2 * k and two.run(batch)["y"].item() == 3 * k
        assert one.run(batch)["pair"][1].item() == 3
