"PyTorch through its compiler."
import torch
import torch.nn.functional as functional
import peers.torch as eager
from peers.torch import backward, decoding, forward, inference, training, version

name = "torch.compile"
eager.compiled = torch.compile
eager.place = lambda i: torch.tensor([i])              # as a number, every position would be compiled anew


def attention_with(cache, i, position, q, k, v):
    "Memory of fixed size, all of it read; a mask hides what is later."
    for old, new in zip(cache[i], (k, v)): old.index_copy_(2, position, new)
    known = (torch.arange(cache[i][0].shape[2]) <= position)[None]
    return functional.scaled_dot_product_attention(q, *cache[i], attn_mask=known)


eager.F.attention_with = attention_with
