"""Layers in networks of images: what each node of a compiled graph gives, of sizes of one and in each memory format."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from subclass_aot import TwoTensor
from subclass_aot.testing import check_compiled
from tests.meta.nodes import runs, wrong_nodes

pytestmark = pytest.mark.filterwarnings("ignore")

Tensor = torch.Tensor


def last(x: Tensor) -> Tensor:
    """Puts a tensor into channels-last, as `Module.to(memory_format=...)` does with a weight."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return x if layout is None else x.contiguous(memory_format=layout)


def packed(x: Tensor) -> Tensor:
    return x


def columns_first(x: Tensor) -> Tensor:
    return x.mT.contiguous().mT


LAYOUTS = (packed, last, columns_first)
SIZES = [
    (3, 4, 8, 8), (3, 1, 8, 8), (1, 4, 8, 8), (3, 4, 1, 1), (3, 4, 8, 1), (3, 4, 1, 8), (1, 1, 8, 8),
    (1, 4, 1, 1), (1, 1, 1, 1),
    (2, 4, 5, 6, 7), (2, 1, 5, 6, 7), (1, 4, 5, 6, 7), (2, 4, 1, 6, 7), (2, 4, 1, 1, 1), (1, 1, 5, 1, 7),
    (3, 4, 8), (3, 1, 8), (1, 4, 8), (3, 4, 1), (1, 1, 1),
]  # fmt: skip
"""Of images, of volumes, and of sequences."""


def convolution(transposed: bool = False, **options: Any) -> Callable[..., Tensor]:
    def run(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        name = f"conv_transpose{x.dim() - 2}d" if transposed else f"conv{x.dim() - 2}d"
        given = {key: x.shape[1] if value == "depthwise" else value for key, value in options.items()}
        result: Tensor = getattr(F, name)(x, weight, bias, **given)
        return result

    return run


CONVOLUTIONS: dict[str, tuple[Callable[..., Tensor], Callable[[int], tuple[int, int]], int]] = {
    "3": (convolution(padding=1), lambda channels: (6, channels), 3),
    "1": (convolution(), lambda channels: (6, channels), 1),
    "to one channel": (convolution(padding=1), lambda channels: (1, channels), 3),
    "depthwise": (convolution(padding=1, groups="depthwise"), lambda channels: (2 * channels, 1), 3),
    "strided": (convolution(padding=1, stride=2), lambda channels: (6, channels), 3),
    "dilated": (convolution(padding=2, dilation=2), lambda channels: (6, channels), 3),
    "transposed": (convolution(True, padding=1), lambda channels: (channels, 6), 3),
    "transposed to one": (convolution(True, padding=1), lambda channels: (channels, 1), 3),
    "transposed 1": (convolution(True), lambda channels: (channels, 6), 1),
    "transposed depthwise": (convolution(True, padding=1, groups="depthwise"), lambda channels: (channels, 2), 3),
}
"""What is computed, the sizes of the weight for a number of channels, and the size of the kernel."""


def pool(name: str, *args: Any, **kwargs: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: getattr(F, f"{name}{x.dim() - 2}d")(x, *args, **kwargs)


def scaled(mode: str, **options: Any) -> Callable[[Tensor], Tensor]:
    """An interpolation, whose mode has another name for each number of dims."""

    def run(x: Tensor) -> Tensor:
        name = {"linear": ["linear", "bilinear", "trilinear"]}.get(mode, [mode] * 3)[x.dim() - 3]
        return F.interpolate(x, mode=name, **options)

    return run


def twice(x: Tensor) -> Tensor:
    return torch.cat([x, x], 1)


def padding(mode: str) -> Callable[[Tensor], Tensor]:
    return lambda x: F.pad(x, [1, 1] * (x.dim() - 2), mode=mode)


def zeros(x: Tensor) -> Tensor:
    return torch.zeros(x.shape, dtype=torch.int64)


LAYERS: dict[str, Callable[[Tensor], Any]] = {
    "group norm": lambda x: F.group_norm(x, 1),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch norm, not trained": lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    "instance norm": F.instance_norm,
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "local response norm": lambda x: F.local_response_norm(x, 2),
    "normalize": F.normalize,
    "max pool": pool("max_pool", 2, 1, 1),
    "average pool": pool("avg_pool", 2, 1, 1),
    "adaptive average pool": pool("adaptive_avg_pool", 2),
    "adaptive average pool to one": pool("adaptive_avg_pool", 1),
    "adaptive max pool": pool("adaptive_max_pool", 1),
    "fractional max pool": lambda x: F.fractional_max_pool2d(x, 1, output_size=1),
    "lp pool": pool("lp_pool", 2, 1),
    "nearest": scaled("nearest", scale_factor=2.0),
    "linear": scaled("linear", scale_factor=2.0),
    "antialias": lambda x: F.interpolate(x, size=5, mode="bilinear", antialias=True),
    "bicubic": lambda x: F.interpolate(x, size=5, mode="bicubic"),
    "pixel shuffle": lambda x: F.pixel_shuffle(twice(twice(x)), 2),
    "pixel unshuffle": lambda x: F.pixel_unshuffle(x, 1),
    "channel shuffle": lambda x: F.channel_shuffle(twice(x), 2),
    "native channel shuffle": lambda x: F.native_channel_shuffle(twice(x), 2),
    "unfold": lambda x: F.unfold(x, 2, padding=1),
    "fold": lambda x: F.fold(F.unfold(x, 2, padding=1), x.shape[2:], 2, padding=1),
    "zero padding": lambda x: F.pad(x, [1, 1] * (x.dim() - 2)),
    "replication padding": padding("replicate"),
    "reflection padding": padding("reflect"),
    "circular padding": padding("circular"),
    "grid": lambda x: F.grid_sample(x, torch.zeros(x.shape[0], *[3] * (x.dim() - 2), x.dim() - 2), align_corners=False),
    "prelu": lambda x: F.prelu(x, torch.ones(1) * 0.2),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "dropout": F.dropout,
    "dropout of channels": lambda x: F.dropout2d(x),
    "silu": F.silu,
    "mish": F.mish,
    "gelu": F.gelu,
    "elu": F.elu,
    "softplus": F.softplus,
    "leaky relu": F.leaky_relu,
    "hard swish": F.hardswish,
    "hard tanh": F.hardtanh,
    "log sigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "glu": lambda x: F.glu(twice(x), 1),
    "softmax": lambda x: x.softmax(1),
    "log softmax": lambda x: x.log_softmax(1),
    "cross entropy": lambda x: F.cross_entropy(x, zeros(x[:, 0])),
    "binary cross entropy": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "mean squares": lambda x: F.mse_loss(x, x.flip(0)),
    "concatenation": twice,
    "stack": lambda x: torch.stack([x, x]),
    "sum with a mean": lambda x: x + x.mean((-2, -1), keepdim=True),
    "by channel": lambda x: x * torch.ones(x.shape[1]).view(-1, *[1] * (x.dim() - 2)),
    "outer product": lambda x: x[:, :1] * x[:1],
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, 2),
    "rotation": lambda x: x.rot90(1, (-2, -1)),
    "repeat": lambda x: x.repeat(1, 2, *[1] * (x.dim() - 2)),
    "repeat interleave": lambda x: x.repeat_interleave(2, 1),
    "index": lambda x: x[:, [0]],
    "gather": lambda x: x.gather(1, zeros(x)),
    "scatter": lambda x: torch.zeros_like(x).scatter_add(1, zeros(x), x),
    "masked fill": lambda x: x.masked_fill(x > 0, 0.0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "clamp": lambda x: torch.clamp(x, min=0),
    "lerp": lambda x: torch.lerp(x, x * 2, 0.5),
    "sort": lambda x: x.sort(1)[0],
    "top": lambda x: x.topk(1, 1)[0],
    "cumulative sum": lambda x: x.cumsum(1),
    "cumulative product": lambda x: x.cumprod(2),
    "maximum": lambda x: x.amax(1),
    "median": lambda x: x.median(1)[0],
    "product": lambda x: x.prod(1),
    "variance": lambda x: x.var(1, correction=0),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "triangle": lambda x: x.tril(),
    "linear layer": lambda x: F.linear(x, torch.ones(3, x.shape[-1])),
    "matrix product": lambda x: x @ x.mT,
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "distances": lambda x: torch.cdist(x.flatten(1), x.flatten(1)),
    "spectrum": lambda x: torch.fft.rfftn(x, dim=(-2, -1)).abs(),
    "channels to the end": lambda x: x.movedim(1, -1).contiguous() * 2,
    "flattened": lambda x: x.reshape(x.shape[0], -1) * 2,
    "clone": lambda x: x.clone(),
    "precise": lambda x: x.double(),
    "half": lambda x: F.silu(x.bfloat16()).float(),
    "like": lambda x: torch.zeros_like(x) + x,
}  # fmt: skip


def programs() -> Iterator[tuple[str, Callable[..., Any], list[Tensor]]]:
    """Every layer on every size, in the layouts of input and weight."""
    for size, layout in itertools.product(SIZES, LAYOUTS):
        x = layout(torch.randn(size))
        for name, layer in LAYERS.items():
            yield f"{name} of {size}, {layout.__name__}", layer, [x]
        for name, (layer, channels, kernel) in CONVOLUTIONS.items():
            for of_weight in LAYOUTS[:2]:
                weight = of_weight(torch.randn(*channels(size[1]), *[kernel] * (len(size) - 2)))
                where = f"convolution {name} of {size}, {layout.__name__}, weight {of_weight.__name__}"
                yield where, layer, [x, weight]
                bias = torch.randn(weight.shape[1] if "transposed" in name else weight.shape[0])
                yield f"{where}, bias", layer, [x, weight, bias]


def check(part: int) -> None:
    found, tried = [], 0
    for name, layer, args in itertools.islice(programs(), part, None, STEP):
        args = [x.requires_grad_() for x in args]
        if runs(layer, args):
            found += [f"{name}: {what}" for what in wrong_nodes(layer, args)]
            tried += 1
    assert not found
    assert tried > 150


STEP = 37
"""One program of so many is tried each time: a prime number, so that all layers, sizes and layouts come."""


def test_some_nodes_are_as_their_kernels_have_them() -> None:
    check(0)


@pytest.mark.long
@pytest.mark.parametrize("part", range(1, STEP))
def test_nodes_are_as_their_kernels_have_them(part: int) -> None:
    check(part)


def network(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "from one channel": (
        lambda: network(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 4, 3)),
        (2, 1, 6, 6),
    ),
    "to one channel": (
        lambda: network(nn.Conv2d(3, 1, 3), nn.BatchNorm2d(1), nn.Mish(), nn.Conv2d(1, 4, 1), nn.GroupNorm(2, 4)),
        (2, 3, 6, 6),
    ),
    "1x1": (
        lambda: network(nn.Conv2d(3, 4, 1), nn.GroupNorm(2, 4), nn.Conv2d(4, 6, 1), nn.InstanceNorm2d(6), nn.GELU()),
        (2, 3, 5, 5),
    ),
    "depthwise": (
        lambda: network(nn.Conv2d(4, 4, 3, groups=4), nn.GroupNorm(2, 4), nn.Hardswish(), nn.Conv2d(4, 8, 1)),
        (2, 4, 6, 6),
    ),
    "one place": (
        lambda: network(nn.Conv2d(3, 8, 5), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 1), nn.GroupNorm(4, 8), nn.SiLU()),
        (2, 3, 5, 5),
    ),
    "up and down": (
        lambda: network(
            nn.Conv2d(1, 4, 3, stride=2), nn.GroupNorm(1, 4), nn.ConvTranspose2d(4, 1, 3), nn.GroupNorm(1, 1), nn.SiLU()
        ),
        (2, 1, 7, 7),
    ),
    "shuffled": (
        lambda: network(nn.Conv2d(1, 8, 1), nn.GroupNorm(2, 8), nn.PixelShuffle(2), nn.GroupNorm(1, 2), nn.GLU(1)),
        (2, 1, 4, 4),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_networks(name: str, layout: Callable[[Tensor], Tensor]) -> None:
    make, size = NETWORKS[name]
    model, x = make(), layout(torch.randn(size))
    check_compiled(model, (x,))
    check_compiled(model, (x,), dynamic=True)


def test_gradients_of_volumes() -> None:
    layers = nn.Conv3d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv3d(4, 1, 1), nn.GroupNorm(1, 1)
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last_3d)
    check_compiled(model, (torch.randn(2, 1, 4, 4, 4),))


def test_gradients_of_a_wrapped_image() -> None:
    model, size = NETWORKS["from one channel"][0](), NETWORKS["from one channel"][1]
    check_compiled(model, (TwoTensor(last(torch.randn(size)), torch.randn(size)),))


def test_gradients_behind_dynamo(fresh_dynamo: None) -> None:
    make, size = NETWORKS["from one channel"]
    model, x = make(), torch.randn(size)
    expected = torch.autograd.grad(model(x).square().sum(), model.parameters())
    compiled = torch.compile(model, backend="subclass_aot")
    found = torch.autograd.grad(compiled(x).square().sum(), model.parameters())
    torch.testing.assert_close(found, expected)
