"PyTorch through its compiler."
import torch
import peers.torch as eager
from peers.torch import backward, forward, training, version

name = "torch.compile"
eager.compiled = torch.compile
