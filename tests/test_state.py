"Files that hold weights: what goes in comes out, and what lies is refused."
import json
import math

import numpy as np
import pytest

from tinylit import nn
from tinylit.graph.dtype import TABLE
from tinylit.nn import optim
from tinylit.nn.state import load_state_dict
from tinylit.nn.state import safe_load
from tinylit.nn.state import safe_save
from tinylit.tensor import Tensor


@pytest.mark.parametrize("dtype", TABLE.values(), ids=str)
def test_every_dtype_returns_bit_for_bit(device, dtype, tmp_path):
    t = Tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype)
    back = safe_load(safe_save({"a.b": t}, tmp_path / "x.safetensors"))["a.b"]
    assert back.dtype is dtype and back.shape == (2, 3) and bytes(back.data()) == bytes(t.data())


def test_shapes_names_and_alignment(device, tmp_path):
    things = {"z": Tensor(1.5), "empty": Tensor.zeros(0, 3), "é \"q\"": Tensor([1, 2, 3], dtype="int8"),
              "wide": Tensor([math.nan, math.inf], dtype="float64"), "view": Tensor([[1, 2], [3, 4]]).T}
    path = safe_save(things, tmp_path / "x", {"made by": "a test"})
    back = safe_load(path)
    assert set(back) == set(things)
    for name, t in things.items(): np.testing.assert_array_equal(back[name].numpy(), t.numpy())
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + n])
    assert n % 8 == 0 and header.pop("__metadata__") == {"made by": "a test"}
    assert all(e["data_offsets"][0] % things[name].dtype.itemsize == 0 for name, e in header.items())
    assert [p.name for p in tmp_path.iterdir()] == ["x"]                   # no draft is left


def test_a_file_by_hand_is_read_without_us(device, tmp_path):
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   '
    (tmp_path / "w").write_bytes(len(header).to_bytes(8, "little") + header + np.float32([1, -2]).tobytes())
    assert safe_load(tmp_path / "w")["w"].tolist() == [1, -2]


def entry(**changes): return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}


LIES = {
    "length": (10**18, {"w": entry()}, "header of 1000000000000000000 bytes"),
    "one too long": (100, {"w": entry()}, "cut off"),
    "not json": (None, b"{'w'", "not JSON"), "not utf-8": (None, b"\xff\xfe", "not JSON"),
    "deep": (None, b'{"a":' * 5000, "not JSON"), "a list": (None, b"[]", "not a JSON object"),
    "twice": (None, b'{"w":1,"w":2}', "twice"), "entry": (None, {"w": 3}, "'w' lacks"),
    "no shape": (None, {"w": {"dtype": "F32"}}, "'w' lacks"), "dtype": (None, {"w": entry(dtype="F31")}, "F31"),
    "negative": (None, {"w": entry(shape=[-2])}, "shape"), "float shape": (None, {"w": entry(shape=[2.0])}, "shape"),
    "true shape": (None, {"w": entry(shape=[True, 2])}, "shape"), "short": (None, {"w": entry(data_offsets=[0, 4])}, "needs 8"),
    "long": (None, {"w": entry(shape=[3])}, "needs 12"), "backwards": (None, {"w": entry(data_offsets=[8, 0])}, "needs 8"),
    "huge": (None, {"w": entry(shape=[2**62, 2**62])}, "needs"), "offsets": (None, {"w": entry(data_offsets=[0])}, "data_offsets"),
    "outside": (None, {"w": entry(data_offsets=[8, 16])}, "not at 0"), "rest": (None, {}, "the file at 8"),
    "overlap": (None, {"w": entry(), "v": entry()}, "overlap"),
    "bool": (None, {"w": entry(dtype="BOOL", shape=[8])}, "more than 0 and 1"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_file_that_lies_is_refused_by_name(device, tmp_path, name):
    length, header, words = LIES[name]
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "liar.safetensors"
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + bytes([7] * 8))
    with pytest.raises(ValueError, match=words) as e: safe_load(path)
    assert "liar.safetensors" in str(e.value)


def test_files_that_are_cut_off(device, tmp_path):
    whole = safe_save({"w": Tensor([1.0, 2.0])}, tmp_path / "w").read_bytes()
    for n in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:n])
        with pytest.raises(ValueError, match="cut"): safe_load(tmp_path / "cut")
    with pytest.raises(FileNotFoundError): safe_load(tmp_path / "nowhere")


def test_an_interrupted_save_leaves_the_old_file(device, tmp_path):
    path = safe_save({"w": Tensor([1.0])}, tmp_path / "w")
    with pytest.raises(TypeError): safe_save({"w": Tensor([2.0])}, path, {"x": object()})
    assert safe_load(path)["w"].tolist() == [1] and len(list(tmp_path.iterdir())) == 1


def test_a_model_takes_what_it_is_given(device, tmp_path):
    make = lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm(4), nn.Linear(4, 2))
    a, b, x = make(), make(), Tensor.rand(5, 3)
    a(x)
    path = safe_save(nn.state_dict(a), tmp_path / "m")
    assert load_state_dict(b, safe_load(path)) is b
    nn.train([a, b], False)
    np.testing.assert_array_equal(a(x).numpy(), b(x).numpy())
    assert all(p.requires_grad and p.buffer is not None for p in nn.parameters(b))
    state = safe_load(path)
    extra, lost = {**state, "more": Tensor(1.0)}, {k: v for k, v in state.items() if k != "0.bias"}
    for wrong in (extra, lost):
        with pytest.raises(ValueError, match="more|0.bias"): load_state_dict(b, wrong)
        load_state_dict(b, wrong, strict=False)
    before = b[0].weight.numpy()
    with pytest.raises(ValueError, match=r"2.bias: \(3,\) does not fit \(2,\)"):
        load_state_dict(b, {**state, "0.weight": Tensor.zeros(4, 3), "2.bias": Tensor.zeros(3)})
    np.testing.assert_array_equal(b[0].weight.numpy(), before)             # all or none


def test_training_goes_on_where_it_was_saved(device, tmp_path):
    x, y = Tensor(np.random.default_rng(0).normal(size=(8, 3)).astype("f")), Tensor([0, 1] * 4)
    def fresh():
        model = nn.Sequential(nn.Linear(3, 8), Tensor.tanh, nn.Linear(8, 2))
        return {"model": model, "opt": optim.Adam(nn.parameters(model), lr=0.05)}
    def train(run, steps):
        for _ in range(steps):
            run["opt"].zero_grad()
            loss = run["model"](x).cross_entropy(y).backward()
            run["opt"].step()
        return loss.item()
    first, second = fresh(), fresh()
    train(first, 5)
    path = safe_save(nn.state_dict(first), tmp_path / "run")
    expected = train(first, 5)
    load_state_dict(second, safe_load(path))
    assert train(second, 5) == expected


def test_the_name_of_the_metadata_is_taken(tmp_path):
    with pytest.raises(ValueError, match="__metadata__"): safe_save({"__metadata__": Tensor(1.0)}, tmp_path / "w")
    assert not list(tmp_path.iterdir())
