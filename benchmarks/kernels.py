"""Activations, losses, norms and layers on large tensors, where kernels take the time: a training step beside eager.

The backend `"eager"` ought to run the kernels that eager runs, in place where eager writes in place. A graph that has
more of them, or that fills new memory for what eager overwrites, shows here and in no other table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

import subclass_aot as sa
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Side, compare

STEP = Target.within(1.1, "training step on large tensors, against eager")
OURS, EAGER = '"eager"', "eager"
ROWS, COLUMNS, BATCH, CHANNELS, SIDE = 256, 2048, 8, 64, 56

Program = tuple[Callable[..., Tensor], list[Tensor]]


def matrix() -> Tensor:
    """Makes a matrix that requires a gradient."""
    return torch.randn(ROWS, COLUMNS, requires_grad=True)


def images() -> Tensor:
    """Makes a batch of images that requires a gradient."""
    return torch.randn(BATCH, CHANNELS, SIDE, SIDE, requires_grad=True)


def weight(*size: int) -> Tensor:
    """Makes a parameter."""
    return torch.rand(size, requires_grad=True)


def signs(*size: int) -> Tensor:
    """Makes a target of -1 and 1."""
    return torch.randint(0, 2, size).float() * 2 - 1


def classes(*size: int) -> Tensor:
    """Makes classes of the columns of a matrix."""
    return torch.randint(0, COLUMNS, size)


def _activation(function: Callable[[Tensor], Tensor]) -> Callable[[], Program]:
    return lambda: (function, [matrix()])


def _loss(function: Callable[..., Tensor], target: Callable[[], Tensor]) -> Callable[[], Program]:
    return lambda: (function, [matrix(), target()])


def _layer(function: Callable[..., Tensor], *weights: tuple[int, ...]) -> Callable[[], Program]:
    return lambda: (function, [images(), *(weight(*size) for size in weights)])


def _probability() -> Tensor:
    return torch.rand(ROWS, COLUMNS)


def _matrix() -> Tensor:
    return torch.randn(ROWS, COLUMNS)


def _attention() -> Program:
    heads = [torch.randn(4, 8, 256, 64, requires_grad=True) for _ in range(3)]
    return F.scaled_dot_product_attention, [*heads]


def _attention_by_hand() -> Program:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = (q @ k.mT / 8).masked_fill(torch.ones(256, 256, dtype=torch.bool).triu(1), -torch.inf)
        return scores.softmax(-1) @ v

    return attention, _attention()[1]


def _batch_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.batch_norm(x, None, None, scale, bias, training=True)


def _embedding() -> Program:
    return F.embedding, [torch.randint(0, 1000, (ROWS, 32)), weight(1000, 64)]


def _rms_norm() -> Program:
    return lambda x, scale: F.rms_norm(x, (COLUMNS,), scale), [matrix(), weight(COLUMNS)]


def _layer_norm() -> Program:
    return lambda x, scale, bias: F.layer_norm(x, (COLUMNS,), scale, bias), [matrix(), weight(COLUMNS), weight(COLUMNS)]


def _feed_forward() -> Program:
    def gated(x: Tensor, up: Tensor, gate: Tensor, down: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    return gated, [torch.randn(ROWS, 128, requires_grad=True), weight(512, 128), weight(512, 128), weight(128, 512)]


def _residual() -> Program:
    def block(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
        y = F.relu(F.group_norm(F.conv2d(x, first, padding=1), 8))
        return F.relu(x + F.group_norm(F.conv2d(y, second, padding=1), 8))

    return block, [torch.randn(4, 16, SIDE, SIDE, requires_grad=True), weight(16, 16, 3, 3), weight(16, 16, 3, 3)]


PROGRAMS: dict[str, Callable[[], Program]] = {
    "relu": _activation(F.relu),
    "relu6": _activation(F.relu6),
    "leaky relu": _activation(F.leaky_relu),
    "prelu": lambda: (F.prelu, [matrix(), weight(1)]),
    "elu": _activation(F.elu),
    "selu": _activation(F.selu),
    "gelu": _activation(F.gelu),
    "gelu, tanh": _activation(lambda x: F.gelu(x, approximate="tanh")),
    "silu": _activation(F.silu),
    "mish": _activation(F.mish),
    "hardswish": _activation(F.hardswish),
    "hardsigmoid": _activation(F.hardsigmoid),
    "hardtanh": _activation(F.hardtanh),
    "softplus": _activation(F.softplus),
    "softsign": _activation(F.softsign),
    "softshrink": _activation(F.softshrink),
    "tanh": _activation(torch.tanh),
    "tanhshrink": _activation(F.tanhshrink),
    "sigmoid": _activation(torch.sigmoid),
    "logsigmoid": _activation(F.logsigmoid),
    "glu": _activation(F.glu),
    "softmax": _activation(lambda x: x.softmax(-1)),
    "log softmax": _activation(lambda x: x.log_softmax(-1)),
    "dropout": _activation(F.dropout),
    "sum of squares": _activation(lambda x: (x * x).sum(-1)),
    "logsumexp": _activation(lambda x: x.logsumexp(-1)),
    "product": _activation(lambda x: x.prod(-1)),
    "variance": _activation(lambda x: x.var(-1)),
    "standard deviation": _activation(lambda x: x.std(-1)),
    "norm": _activation(lambda x: x.norm(dim=-1)),
    "cumulative sum": _activation(lambda x: x.cumsum(-1)),
    "polynomial": _activation(lambda x: 1 + x * (2 + x * (3 + x * 4))),
    "mean squares": _loss(F.mse_loss, _matrix),
    "absolute differences": _loss(F.l1_loss, _matrix),
    "smooth l1": _loss(F.smooth_l1_loss, _matrix),
    "huber": _loss(F.huber_loss, _matrix),
    "binary cross entropy": _loss(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y), _probability),
    "binary cross entropy with logits": _loss(F.binary_cross_entropy_with_logits, _probability),
    "cross entropy": _loss(F.cross_entropy, lambda: classes(ROWS)),
    "cross entropy, smoothed": _loss(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), lambda: classes(ROWS)),
    "Kullback-Leibler": _loss(lambda x, y: F.kl_div(x.log_softmax(-1), y, reduction="batchmean"), _probability),
    "Poisson": _loss(F.poisson_nll_loss, _probability),
    "Gaussian": lambda: (F.gaussian_nll_loss, [matrix(), _matrix(), weight(ROWS, COLUMNS)]),
    "soft margin": _loss(F.soft_margin_loss, lambda: signs(ROWS, COLUMNS)),
    "hinge": _loss(F.hinge_embedding_loss, lambda: signs(ROWS, COLUMNS)),
    "cosine": lambda: (F.cosine_embedding_loss, [matrix(), matrix(), signs(ROWS)]),
    "triplet": lambda: (F.triplet_margin_loss, [matrix(), matrix(), matrix()]),
    "layer norm": _layer_norm,
    "rms norm": _rms_norm,
    "normalize": _activation(F.normalize),
    "batch norm": _layer(_batch_norm, (CHANNELS,), (CHANNELS,)),
    "group norm": _layer(lambda x, scale, bias: F.group_norm(x, 8, scale, bias), (CHANNELS,), (CHANNELS,)),
    "instance norm": _layer(F.instance_norm),
    "local response norm": _layer(lambda x: F.local_response_norm(x, 5)),
    "max pool": _layer(lambda x: F.max_pool2d(x, 2)),
    "average pool": _layer(lambda x: F.avg_pool2d(x, 2)),
    "adaptive pool": _layer(lambda x: F.adaptive_avg_pool2d(x, 1)),
    "upsample": _layer(lambda x: F.interpolate(x, scale_factor=2.0)),
    "bilinear": _layer(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")),
    "pad": _layer(lambda x: F.pad(x, [1, 1, 1, 1])),
    "pad, circular": _layer(lambda x: F.pad(x, [1, 1, 1, 1], mode="circular")),
    "pad, reflected": _layer(lambda x: F.pad(x, [1, 1, 1, 1], mode="reflect")),
    "pixel shuffle": _layer(lambda x: F.pixel_shuffle(x, 2)),
    "convolution, 1x1": _layer(F.conv2d, (CHANNELS, CHANNELS, 1, 1)),
    "convolution, depthwise": _layer(lambda x, w: F.conv2d(x, w, padding=1, groups=CHANNELS), (CHANNELS, 1, 3, 3)),
    "embedding": _embedding,
    "attention": _attention,
    "attention by hand": _attention_by_hand,
    "gated feed-forward": _feed_forward,
    "residual block": _residual,
}
"""By name, what makes a function and its arguments."""


def run(budget: Budget, names: Iterable[str] | None = None) -> Iterator[Result]:
    """Measures a training step of each program."""
    for name in PROGRAMS if names is None else names:
        torch.manual_seed(0)
        program, args = PROGRAMS[name]()
        tangent = torch.ones_like(program(*args))
        sides = {OURS: sa.aot_compile(program), EAGER: program}
        comparison = compare({side: Side(step, (call, args, tangent)) for side, call in sides.items()}, budget)
        yield Result("training step", name, comparison, OURS, {EAGER: STEP})


def step(call: Callable[..., Tensor], args: list[Tensor], tangent: Tensor) -> None:
    """Runs forward and backward, and drops the gradients."""
    call(*args).backward(tangent)
    for x in args:
        x.grad = None
