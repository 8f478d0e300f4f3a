"""Rules where torch's own tell other strides than the kernels give, or depend on the device."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import MetaTensor, Spec
from subclass_aot.meta.infer import infer
from tests.meta.rule_check import check, columns_first, spec_of

aten = torch.ops.aten


@pytest.mark.parametrize("x, target", [(columns_first, torch.rand), (torch.rand, columns_first)])
@pytest.mark.parametrize("gradient", [(), (3, 4)])
def test_pointwise_losses(x: Any, target: Any, gradient: tuple[int, ...]) -> None:
    given = torch.rand(gradient), x(3, 4).sigmoid(), target(3, 4).sigmoid()
    check(aten.mse_loss_backward.default, *given, 1)
    check(aten.smooth_l1_loss_backward.default, *given, 1, 0.5)
    check(aten.huber_loss_backward.default, *given, 1, 0.5)
    check(aten.binary_cross_entropy_backward.default, *given, None, 1)


def test_batch_norm() -> None:
    mean, var = torch.zeros(3), torch.ones(3)
    images = torch.randn(2, 3, 4, 5)
    channels_last = images.to(memory_format=torch.channels_last)
    for x in (torch.randn(2, 3), columns_first(2, 3, 4), images, channels_last, images.mT):
        check(aten._native_batch_norm_legit_no_training.default, x, None, None, mean, var, 0.1, 1e-5)
        check(aten._native_batch_norm_legit.no_stats, x, None, None, True, 0.1, 1e-5)
        for training in (True, False):
            check(aten._native_batch_norm_legit.default, x, None, None, mean, var, training, 0.1, 1e-5)
            y = check(aten._native_batch_norm_legit_functional.default, x, None, None, mean, var, training, 0.1, 1e-5)
            stats = mean, var, y[1], y[2], training, 1e-5
            check(aten.native_batch_norm_backward.default, torch.randn_like(y[0]), x, None, *stats, [True] * 3)


def test_embedding_bag() -> None:
    weight, indices, offsets = torch.randn(5, 3), torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2])
    for mode in (0, 1, 2):
        check(aten._embedding_bag.default, weight, indices, offsets, False, mode)
        check(aten._embedding_bag_forward_only.default, weight, indices, offsets, False, mode)


def test_linear_algebra() -> None:
    check(aten.linalg_eig.default, torch.randn(2, 3, 3))
    for size in ((2, 3), (3, 2), (2, 3, 3)):
        for full in (False, True):
            check(aten._linalg_svd.default, torch.randn(size), full)
    check(aten.nonzero_static.default, torch.eye(3), size=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [5, 8])
def test_products_of_groups(columns: int, dtype: torch.dtype) -> None:
    """Rows of the result begin at multiples of 16 bytes."""

    def columns_first(*size: int) -> torch.Tensor:
        return torch.randn(*size, dtype=dtype).mT.contiguous().mT

    def ends(*ends: int) -> torch.Tensor:
        return torch.tensor(ends, dtype=torch.int32)

    x = torch.randn(6, 8, dtype=dtype)
    check(aten._grouped_mm.default, x, columns_first(2, 8, columns), ends(2, 6))
    check(aten._grouped_mm.default, x.expand(2, 6, 8), columns_first(8, 2 * columns), ends(columns, 2 * columns))
    check(aten._grouped_mm.default, x.expand(2, 6, 8), columns_first(2, 8, columns))
    check(aten._grouped_mm.default, torch.randn(8, 16, dtype=dtype), columns_first(16, columns), ends(8, 16))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_fft(order: tuple[int, ...]) -> None:
    """The result lies in memory as the argument does, in the order in which the dims were transformed."""
    x = torch.randn([(5, 6, 7)[d] for d in order]).permute(tuple(order.index(d) for d in range(3)))
    assert x.shape == (5, 6, 7)
    for count in (1, 2, 3):
        for dims in map(list, itertools.permutations(range(3), count)):
            check(aten._fft_r2c.default, x, dims, 0, False)
            spectrum = check(aten._fft_r2c.default, x, dims, 0, True)[0]
            check(aten._fft_c2r.default, spectrum, dims, 0, x.shape[dims[-1]])
            check(aten._fft_c2c.default, spectrum, dims, 0, True)


@pytest.mark.parametrize("transform", [torch.fft.fft, torch.fft.rfft, torch.fft.ihfft])
@pytest.mark.parametrize("rows", [1, 2])
def test_fft_with_symbolic_sizes(transform: Any, rows: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return transform(x.unfold(-1, 2, 3)).abs()

    compiled = sa.aot_compile(program, dynamic=True)
    for columns in (3, 6, 8):
        x = torch.rand(rows, columns)
        assert torch.equal(compiled(x), program(x))
    assert "with symbols it fails" not in compiled.explain()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_images(layout: torch.memory_format) -> None:
    x = torch.randn(2, 4, 6, 6).to(memory_format=layout)
    pooled, indices = aten.max_pool2d_with_indices(x, [2, 2], [2, 2])
    check(aten.max_unpool2d.default, pooled, indices, [6, 6])
    check(aten.max_unpool2d.default, pooled[0].contiguous(), indices[0].contiguous(), [6, 6])
    check(aten.channel_shuffle.default, x, 2)
    check(aten.pixel_shuffle.default, x, 2)
    padded = check(aten.replication_pad2d.default, x, [1, 1, -1, 1])[0]
    check(aten.replication_pad2d_backward.default, torch.randn_like(padded), x, [1, 1, -1, 1])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("weight_layout", [torch.contiguous_format, torch.channels_last])
def test_convolution(transposed: bool, layout: torch.memory_format, weight_layout: torch.memory_format) -> None:
    x = torch.randn(2, 3, 5, 6).to(memory_format=layout)
    weight = torch.randn(3, 3, 3, 3).to(memory_format=weight_layout)
    options: Any = [1, 1], [0, 0], [1, 1], transposed, [0, 0], 1
    y = check(aten.convolution.default, x, weight, torch.randn(3), *options)[0]
    check(aten.convolution_backward.default, torch.randn_like(y), x, weight, [3], *options, [True, True, True])


def test_power_of_a_number() -> None:
    for base in (2, 2.0, 1j):
        for exponent in (columns_first(3, 4), torch.arange(3)):
            check(aten.pow.Scalar, base, exponent)


def test_angle() -> None:
    for dtype in (torch.complex64, torch.float64, torch.int32, torch.bool):
        for x in (columns_first(3, 4), torch.rand(3, 4), torch.rand(1, 4).expand(3, 4)):
            check(aten.angle.default, x.to(dtype))


@pytest.mark.parametrize(
    "size, stride", [((5, 1), (1, 5)), ((1, 5), (1, 1)), ((3, 4), (1, 3)), ((1, 1), (7, 9)), ((3, 1), (2, 7))]
)
def test_dims_of_one_place(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    x = (torch.rand(12) + 1).as_strided(size, stride)
    calls: Any = ((aten.diag_embed.default, (x,)), (aten.polygamma.default, (1, x)), (aten.mvlgamma.default, (x, 1)))
    for func, args in calls:
        told: Any = infer(func, tuple(map(spec_of, args)), {})
        assert func(*args).stride() == told.stride, func


def test_other_devices_are_asked_about_as_torch_does() -> None:
    """On CUDA the second result of `svd` is row-major. No hardware is needed to know."""
    spec = Spec.make((2, 3), (3, 1), device=torch.device("cuda"))
    assert infer(aten._linalg_svd.default, (spec,), {})[2] == Spec.make((2, 3), (3, 1), device=torch.device("cuda"))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_channel_scaled_up_stays_in_channels_last(device: str) -> None:
    with sa.meta(device):
        x = torch.empty_strided((2, 1, 4, 4), (16, 1, 4, 1))
        assert torch.nn.functional.interpolate(x, (3, 3), mode="bicubic").stride() == (9, 1, 3, 1)


@pytest.mark.parametrize("mode", ["trilinear", "nearest", "nearest-exact", "area"])
@pytest.mark.parametrize("sizes", [(2, 1, 4, 4, 4), (2, 3, 4, 4, 4), (2, 3, 1, 4, 4), (1, 1, 4, 1, 4)])
def test_volumes_scaled_up(mode: str, sizes: tuple[int, ...]) -> None:
    for layout in (torch.channels_last_3d, torch.contiguous_format):
        x = torch.rand(sizes).contiguous(memory_format=layout)
        expected = torch.nn.functional.interpolate(x, (3, 3, 3), mode=mode)
        assert torch.nn.functional.interpolate(MetaTensor.like(x), (3, 3, 3), mode=mode).stride() == expected.stride()


@pytest.mark.parametrize("func", [aten.isinf.default, aten.isfinite.default, aten.isnan.default], ids=str)
@pytest.mark.parametrize("stride", [(1, 20), (1, 1), (2, 1), (1, 2)])
def test_of_complex_numbers_of_one_column(func: Any, stride: tuple[int, int]) -> None:
    x = torch.zeros(40, dtype=torch.complex64).as_strided((20, 1), stride)
    assert func(MetaTensor.like(x)).stride() == func(x).stride()


@pytest.mark.parametrize(("size", "stride"), [((5, 1, 5), (5, 1, 1)), ((5, 1), (1, 5)), ((5, 1), (1, 1))])
def test_steps_along_dims_of_one_place(size: tuple[int, ...], stride: tuple[int, ...]) -> None:
    """Nobody goes there; they are as kernels give them nevertheless."""
    x = torch.zeros(25).as_strided(size, stride)
    like = MetaTensor.like(x)
    assert torch.ops.aten.zero(like).stride() == torch.ops.aten.zero(x).stride()
    if len(size) == 2:
        mask, places, values = torch.ones(size, dtype=torch.bool), torch.zeros(size, dtype=torch.long), torch.ones(size)
        put = torch.ops.aten._unsafe_masked_index_put_accumulate
        expected = put(x, mask, [places, places], values)
        told = put(like, MetaTensor.like(mask), [MetaTensor.like(places)] * 2, MetaTensor.like(values))
        assert told.stride() == expected.stride()


@pytest.mark.parametrize("name", ["reflection_pad", "replication_pad"])
@pytest.mark.parametrize(
    "size", [(2, 4, 5, 6), (2, 1, 5, 6), (0, 4, 5, 6), (2, 4, 5, 6, 7), (1, 1, 5, 6, 7), (0, 4, 5, 6, 7)]
)
def test_padding(name: str, size: tuple[int, ...]) -> None:
    dims = len(size) - 2
    pads = [[1, 0] + [0] * (2 * dims - 2), [0] * (2 * dims), [0] * (2 * dims - 1) + [1]]
    forward = getattr(aten, f"{name}{dims}d").default
    backward = getattr(aten, f"{name}{dims}d_backward").default
    last = torch.rand(size).to(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d)
    for x, pad in itertools.product((torch.rand(size), last, torch.rand(size).mT, last[:, :, 1:]), pads):
        (y,) = check(forward, x, pad)
        for gradient in (torch.rand_like(y), torch.rand(y.shape)):
            check(backward, gradient, x, pad)
