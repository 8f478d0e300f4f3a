"""Shape rules of ours, against what the operators really give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.meta import MetaTensor
from tests.meta.rule_check import check, columns_first

aten = torch.ops.aten


@pytest.mark.parametrize("make", [torch.randn, columns_first])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_margin_losses(make: Any, reduction: int) -> None:
    x, target, labels = make(3, 4), torch.tensor([0, 1, 2]), torch.tensor([[0, 1, -1, 0]] * 3)
    gradient = torch.randn(3) if reduction == 0 else torch.tensor(1.0)
    check(aten.multi_margin_loss_backward.default, gradient, x, target, 1, 1.0, None, reduction)
    check(aten.multi_margin_loss_backward.default, gradient, x, target, 2, 0.5, torch.rand(4), reduction)
    loss, is_target = aten.multilabel_margin_loss_forward(x, labels, reduction)
    check(aten.multilabel_margin_loss_backward.default, torch.ones_like(loss), x, labels, reduction, is_target)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_fractional_max_pool3d(batch: tuple[int, ...]) -> None:
    x, kernel, size = torch.randn(*batch, 3, 6, 6, 6), [2, 2, 2], [3, 3, 3]
    y, indices = aten.fractional_max_pool3d(x, kernel, size, torch.rand(*batch or (1,), 3, 3))
    check(aten.fractional_max_pool3d_backward.default, torch.ones_like(y), x, kernel, size, indices)


def test_ctc_loss() -> None:
    targets, lengths = torch.randint(1, 5, (3, 4)), ([10, 10, 10], [4, 3, 2])
    for x in (torch.randn(10, 3, 5), torch.randn(3, 10, 5).transpose(0, 1)):
        x = x.log_softmax(-1)
        loss, alpha = aten._ctc_loss(x, targets, *lengths)
        check(aten._ctc_loss_backward.default, torch.ones_like(loss), x, targets, *lengths, loss, alpha, 0)
        tensors = [torch.tensor(n) for n in lengths]
        check(aten._ctc_loss_backward.Tensor, torch.ones_like(loss), x, targets, *tensors, loss, alpha, 0, True)


@pytest.mark.parametrize("size", [(4, 3), (3, 4), (2, 3, 4), (0, 3), (3, 0), (0, 2, 2), (1, 1)])
def test_geqrf(size: tuple[int, ...]) -> None:
    check(aten.geqrf.default, torch.randn(size))


@pytest.mark.parametrize("size", [(4, 16, 8), (3, 5, 7), (16, 32, 16)])
@pytest.mark.parametrize("out_dtype", [None, torch.float32, torch.bfloat16])
def test_scaled_products(size: tuple[int, int, int], out_dtype: Any) -> None:
    rows, shared, columns = size
    a, b = (torch.randn(n, shared).to(torch.float8_e4m3fn) for n in (rows, columns))
    one = torch.ones(())
    check(aten._scaled_mm.default, a, b.t(), one, one, None, None, out_dtype)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        aten._scaled_mm(MetaTensor.like(a), MetaTensor.like(b), one, one)


def test_histograms() -> None:
    points, weight = torch.randn(5, 2), torch.rand(5)
    edges = [torch.arange(4.0), torch.arange(6.0)]
    check(aten.histogram.bin_ct, points, 7)
    check(aten.histogram.bin_ct, points[:, 0], 3, range=[-1.0, 1.0], weight=weight, density=True)
    check(aten.histogram.bins_tensor, points, edges[0])
    check(aten.histogram.bins_tensor, points, torch.arange(10.0)[::2])
    check(aten._histogramdd_bin_edges.default, points, [3, 4])
    check(aten._histogramdd_from_bin_cts.default, points, [3, 4], weight=weight)
    check(aten._histogramdd_from_bin_tensors.default, points, edges, density=True)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extremes_have_the_dtypes_that_kernels_have(name: str) -> None:
    """Nobody may read the result, and then no kernel would say it."""
    operator = getattr(aten, name).default
    for arguments in [(), (0,), (-1, True)]:
        check(operator, torch.randn(2, 3), *arguments)
    for dtype in (torch.bool, torch.complex64):
        x = torch.zeros(2, 3, dtype=dtype)
        with pytest.raises(RuntimeError) as eager:
            operator(x)
        with pytest.raises(RuntimeError) as ours:
            operator(MetaTensor(x))
        assert str(ours.value).splitlines()[0] == str(eager.value).splitlines()[0]
    with pytest.raises(IndexError):
        operator(MetaTensor(torch.zeros(2, 0)), 1)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_the_fast_paths_of_transformers(need_weights: bool, average: bool) -> None:
    x, width, heads = torch.rand(2, 8, 32), 32, 4
    weights = [torch.rand(3 * width, width), torch.rand(3 * width), torch.rand(width, width), torch.rand(width)]
    check(aten._native_multi_head_attention.default, x, x, x, width, heads, *weights, None, need_weights, average)
    norm, feed = torch.rand(width), [torch.rand(64, 32), torch.rand(64), torch.rand(32, 64), torch.rand(32)]
    options = (False, False, 1e-5, *[norm] * 4)
    for given in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        check(aten._transformer_encoder_layer_fwd.default, given, width, heads, *weights, *options, *feed)
