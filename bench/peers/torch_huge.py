"PyTorch with huge pages, which it does not use unless it is told: so that a win over it is not only that."
import os
os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
from peers.torch import backward, decoding, forward, inference, training, version

name = "torch+huge"
