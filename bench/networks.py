"""The networks that are measured, each written once over the functions `F` of a library.

`p` is the list of the weights, whose shapes stand beside each network: (outputs, inputs, height, width) of a convolution,
(inputs, outputs) of a product, (1, n) of what is near one, (n,) of what is near zero.
"""


def mlp(F, p, x, y):
    "784-512-512-10 with ReLU and cross entropy."
    for i in (0, 2): x = F.relu(x @ p[i] + p[i + 1])
    return F.cross_entropy(x @ p[4] + p[5], y)


MLP = [(784, 512), (512,), (512, 512), (512,), (512, 10), (10,)]


def cnn(F, p, x, y):
    "Two 5x5 convolutions of 32, batch norm, pool; two 3x3 of 64, batch norm, pool; linear."
    x = F.relu(F.conv2d(x, p[0], p[1], 0))
    x = F.relu(F.conv2d(x, p[2], p[3], 0))
    x = F.max_pool(F.batch_norm(x, p[4], p[5]))
    x = F.relu(F.conv2d(x, p[6], p[7], 0))
    x = F.relu(F.conv2d(x, p[8], p[9], 0))
    x = F.max_pool(F.batch_norm(x, p[10], p[11]))
    return F.cross_entropy(F.flatten(x) @ p[12] + p[13], y)


CNN = [(32, 1, 5, 5), (32,), (32, 32, 5, 5), (32,), (1, 32), (32,),
       (64, 32, 3, 3), (64,), (64, 64, 3, 3), (64,), (1, 64), (64,), (576, 10), (10,)]


def small_cnn(F, p, x, y):
    "The network of `tinylit demo`: two 3x3 convolutions of 16 and 32, each pooled; linear."
    for i in (0, 2): x = F.max_pool(F.relu(F.conv2d(x, p[i], p[i + 1], 1)))
    return F.cross_entropy(F.flatten(x) @ p[4] + p[5], y)


SMALL_CNN = [(16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (128, 10), (10,)]

# (channels in, channels out, stride) of the eight blocks of ResNet-18
BLOCKS = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]


def resnet18(F, p, x):
    "He et al. 2016 (arXiv:1512.03385), as it answers: batch norm with the statistics kept from training."
    p = iter(p)
    def conv(x, stride, padding):
        x = F.conv2d(x, next(p), None, padding, stride)
        scale, shift, mean, var = (next(p) for _ in range(4))
        return F.kept_norm(x, scale, shift, mean, var)
    x = F.max_pool(F.relu(conv(x, 2, 3)), 3, 2, 1)
    for n, m, stride in BLOCKS:
        y = conv(F.relu(conv(x, stride, 1)), 1, 1)
        x = F.relu(y + (conv(x, stride, 0) if n != m else x))
    return F.mean(x, (2, 3)) @ next(p) + next(p)


def conv_and_norm(m, n, size): return [(m, n, size, size), (1, m), (m,), (m,), (1, m)]


RESNET18 = conv_and_norm(64, 3, 7)
for n, m, _ in BLOCKS:
    RESNET18 += conv_and_norm(m, n, 3) + conv_and_norm(m, m, 3) + (conv_and_norm(m, n, 1) if n != m else [])
RESNET18 += [(512, 1000), (1000,)]

LAYERS, HEADS, WIDTH, WORDS, PLACES = 12, 12, 768, 50257, 1024
PROMPT, CACHE = 256, 512


def gpt2(F, p, tokens, n, places, attend):
    "Scores (1, WORDS) for what follows the `n` `tokens`; `attend(layer, q, k, v)` looks back, over (1, HEADS, n, 64)."
    def heads(x): return F.permute(F.reshape(x, (1, n, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))
    x = F.take(p[0], tokens) + places
    for i in range(LAYERS):
        scale1, shift1, ask, ask_b, told, told_b, scale2, shift2, wide, wide_b, back, back_b = p[2 + 12 * i:14 + 12 * i]
        q, k, v = map(heads, F.split(F.layer_norm(x, scale1, shift1) @ ask + ask_b, 3))
        y = F.reshape(F.permute(attend(i, q, k, v), (0, 2, 1, 3)), (1, n, WIDTH))
        x = x + (y @ told + told_b)
        x = x + (F.gelu(F.layer_norm(x, scale2, shift2) @ wide + wide_b) @ back + back_b)
    return F.layer_norm(x, *p[-2:])[:, -1] @ p[0].T


LAYER = [(1, WIDTH), (WIDTH,), (WIDTH, 3 * WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,),
         (1, WIDTH), (WIDTH,), (WIDTH, 4 * WIDTH), (4 * WIDTH,), (4 * WIDTH, WIDTH), (WIDTH,)]
GPT2 = [(WORDS, WIDTH), (PLACES, WIDTH), *LAYERS * LAYER, (1, WIDTH), (WIDTH,)]


def prefill(F, p, tokens):
    "GPT-2 124M (Radford et al. 2019) reads a prompt."
    return gpt2(F, p, tokens, PROMPT, p[1][:PROMPT], lambda i, q, k, v: F.attention(q, k, v))


def decode(F, p, token, position, cache):
    "It reads one token more, at `position`; `cache` holds the keys and values of each layer, and takes those of the new one."
    return gpt2(F, p, token, 1, F.row(p[1], position), lambda i, q, k, v: F.attention_with(cache, i, position, q, k, v))
