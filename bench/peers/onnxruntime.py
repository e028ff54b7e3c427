"ONNX Runtime: the workload is traced into an ONNX model, which the runtime optimises and runs. No gradients."
import os
from types import SimpleNamespace
import numpy as np
import onnxruntime
from onnx import StringStringEntryProto, TensorProto, helper, numpy_helper
from networks import PROMPT

name, version = "onnxruntime", onnxruntime.__version__
OPSET = 20
ELSEWHERE = [StringStringEntryProto(key="location", value="memory")]


class Model:
    "An ONNX graph being written."
    def __init__(self): self.nodes, self.constants, self.weights = [], [], {}
    def add(self, op: str, *src, **attributes) -> "Value": return self.several(op, 1, *src, **attributes)[0]
    def several(self, op: str, n: int, *src, **attributes) -> list["Value"]:
        "A node with `n` results."
        names = [s.name if isinstance(s, Value) else self.constant(s) for s in src]
        out = [f"v{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(op, names, out, **attributes))
        return [Value(self, o) for o in out]
    def constant(self, x) -> str:
        "The name of a new constant: of an array, of a shape or axes (a list or tuple), or of a number."
        label = f"c{len(self.constants)}"
        if not isinstance(x, np.ndarray): x = np.array(x, np.int64 if isinstance(x, (list, tuple)) else np.float32)
        self.constants.append(numpy_helper.from_array(x, label))
        return label
    def weight(self, x: np.ndarray) -> "Value":
        "A constant whose numbers stay where they are: a model in text holds 2 GB, and would copy them."
        label = f"w{len(self.weights)}"
        self.constants.append(TensorProto(name=label, dims=x.shape, data_type=TensorProto.FLOAT, external_data=ELSEWHERE,
                                          data_location=TensorProto.EXTERNAL))
        self.weights[label] = onnxruntime.OrtValue.ortvalue_from_numpy(x)
        return Value(self, label)


class Value:
    "A name in a model, with arithmetic."
    def __init__(self, model, name): self.model, self.name = model, name
    def __add__(self, x): return self.model.add("Add", self, x)
    def __sub__(self, x): return self.model.add("Sub", self, x)
    def __mul__(self, x): return self.model.add("Mul", self, x)
    def __matmul__(self, x): return self.model.add("MatMul", self, x)
    @property
    def T(self): return self.model.add("Transpose", self)
    def __getitem__(self, key):
        "`x[:n]` and `x[:, -1]`."
        if isinstance(key, slice): return self.model.add("Slice", self, [0], [key.stop], [0])
        return self.model.add("Gather", self, np.array(key[1]), axis=1)


def reduce_by(op: str):
    return lambda x, axis: x.model.add(op, x, *([] if axis is None else [np.atleast_1d(axis)]), keepdims=0)


def attend(q, k, v, hidden=None):
    scores = q.model.add("MatMul", q, q.model.add("Transpose", k, perm=[0, 1, 3, 2])) * 64**-0.5
    if hidden is not None: scores = scores + hidden
    return q.model.add("Softmax", scores, axis=-1) @ v


def attention(q, k, v): return attend(q, k, v, np.triu(np.full((PROMPT, PROMPT), -np.inf, np.float32), 1))


def attention_with(cache, i, position, q, k, v):
    "As exported models do it: keys and values are inputs, and with the new ones behind them results."
    cache[i] = [q.model.add("Concat", *both, axis=2) for both in zip(cache[i], (k, v))]
    return attend(q, *cache[i])


F = SimpleNamespace(
    relu=lambda x: x.model.add("Relu", x), gelu=lambda x: x.model.add("Gelu", x, approximate="tanh"),
    sum=reduce_by("ReduceSum"), max=reduce_by("ReduceMax"), softmax=lambda x: x.model.add("Softmax", x, axis=1),
    argmax=lambda x, axis: x.model.add("ArgMax", x, axis=axis, keepdims=0), mean=reduce_by("ReduceMean"),
    layer_norm=lambda x, w, b: x.model.add("LayerNormalization", x, w, b, axis=-1),
    conv2d=lambda x, w, b, padding, stride=1: x.model.add("Conv", x, w, *([] if b is None else [b]), pads=[padding] * 4,
                                                           strides=[stride] * 2),
    kept_norm=lambda x, *four: x.model.add("BatchNormalization", x, *four),
    max_pool=lambda x, size=2, stride=2, padding=0: x.model.add(
        "MaxPool", x, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[padding] * 4),
    take=lambda table, i: table.model.add("Gather", table, i), row=lambda table, i: table.model.add("Gather", table, i),
    reshape=lambda x, shape: x.model.add("Reshape", x, shape), permute=lambda x, order: x.model.add("Transpose", x, perm=order),
    split=lambda x, n: x.model.several("Split", n, x, axis=-1, num_outputs=n), attention=attention,
    attention_with=attention_with)
KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int32): TensorProto.INT32, np.dtype(np.int64): TensorProto.INT64}


def runner(model: Model, inputs: dict, *results):
    "A function that runs `model` on these inputs."
    def described(name, kind, shape): return helper.make_tensor_value_info(name, kind, shape)
    arguments = [described(n, KINDS[a.dtype], a.shape) for n, a in inputs.items()]
    kind = TensorProto.INT64 if model.nodes[-1].op_type == "ArgMax" else TensorProto.FLOAT
    graph = helper.make_graph(model.nodes, "g", arguments, [described(r.name, kind, None) for r in results], model.constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    made.ir_version = 9
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    if model.weights: options.add_external_initializers(list(model.weights), list(model.weights.values()))
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)[0]


def named(model: Model, arrays) -> tuple[dict, list]:
    "Inputs for `arrays`: their arrays by name, and the values that stand for them."
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    return inputs, [Value(model, n) for n in inputs]


def forward(run, arrays):
    model = Model()
    inputs, values = named(model, arrays)
    return runner(model, inputs, run(F, *values))


def inference(run, parameters, *arrays):
    model = Model()
    inputs, values = named(model, arrays)
    return runner(model, inputs, run(F, list(map(model.weight, parameters)), *values))


def decoding(run, parameters, token, position, cache):
    model = Model()
    past = [a[:, :, :position] for pair in cache for a in pair]
    inputs, (token, position, *values) = named(model, [token, np.array([position]), *map(np.ascontiguousarray, past)])
    kept = list(zip(values[::2], values[1::2]))
    y = run(F, list(map(model.weight, parameters)), token, position, kept)
    return runner(model, inputs, y, *(v for pair in kept for v in pair))
