"""An operator without data gives what it gives for real tensors, in any layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from subclass_aot import MetaTensor, Spec
from subclass_aot.errors import MutationError
from subclass_aot.meta import Storage


def assert_same(real: Any, twin: Any) -> None:
    """Equal structures, each tensor with its spec and `requires_grad`."""
    reals, structure = optree.tree_flatten(real, none_is_leaf=True)
    twins, other = optree.tree_flatten(twin, none_is_leaf=True)
    assert structure == other
    for x, y in zip(reals, twins, strict=True):
        if isinstance(x, torch.Tensor):
            assert type(y) is MetaTensor and y.requires_grad == x.requires_grad
            assert Spec.of(x) is y.meta_spec, f"{Spec.of(x)} expected, {y.meta_spec} got"
            # What torch's C++ side says of the twin is what its spec says.
            assert (tuple(y.shape), y.stride(), y.storage_offset(), y.dtype) == (
                y.meta_spec.size, y.meta_spec.stride, y.meta_spec.offset, y.meta_spec.dtype,
            )  # fmt: skip
        else:
            assert type(x) is type(y) and x == y


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "packed": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT,
    "outermost last": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "part": lambda x: F.pad(x, (1, 2))[..., 1:-2],
    "steps": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
    "shifted": lambda x: torch.cat([x, x])[x.shape[0] :],
}

# Functions of a float `[3, 4, 4]` and a float `[4, 4]`.
FUNCTIONS: list[Callable[[torch.Tensor, torch.Tensor], Any]] = [
    lambda x, y: x + y,
    lambda x, y: y - x.sin(),
    lambda x, y: x > y,
    lambda x, y: (x * 2).to(torch.float64) / y,
    lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: x.to(torch.int32) // 2,
    lambda x, y: x @ y,
    lambda x, y: y @ x,
    lambda x, y: torch.baddbmm(x, x, x),
    lambda x, y: torch.einsum("bij,kj->bki", x, y),
    lambda x, y: x.sum(1),
    lambda x, y: x.mean((0, 2), keepdim=True),
    lambda x, y: x.max(-1),
    lambda x, y: x.amax(0),
    lambda x, y: x.std(),
    lambda x, y: x.sort(1),
    lambda x, y: x.topk(2),
    lambda x, y: x.cumsum(0),
    lambda x, y: x.softmax(-1),
    lambda x, y: F.layer_norm(x, (4, 4), y, y),
    lambda x, y: F.gelu(x),
    lambda x, y: F.linear(x, y, y[0]),
    lambda x, y: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    lambda x, y: F.conv1d(x, y[..., None]),
    lambda x, y: F.max_pool2d(x, 2),
    lambda x, y: F.pad(x, (1, 0, 2, -1)),
    lambda x, y: F.interpolate(x[None], scale_factor=2),
    lambda x, y: F.mse_loss(x[0], y),
    lambda x, y: F.cross_entropy(x, y[:3].abs().to(torch.int64) % 4),
    lambda x, y: F.batch_norm(x, None, None, y[0], y[0], training=True),
    lambda x, y: x.transpose(0, 2),
    lambda x, y: x.permute(2, 0, 1)[1:],
    lambda x, y: x[:, 1::2, None, -1],
    lambda x, y: x[..., torch.tensor([0, 2])],
    lambda x, y: x.flatten(1),
    lambda x, y: x.reshape(6, 8),
    lambda x, y: x.unfold(1, 2, 1),
    lambda x, y: x.diagonal(0, 1, 2),
    lambda x, y: x.split([1, 2]),
    lambda x, y: x.unbind(1),
    lambda x, y: x.chunk(2, -1),
    lambda x, y: x.expand(2, 3, 4, 4),
    lambda x, y: torch.cat([x, y[None]]),
    lambda x, y: torch.stack([x, x], -1),
    lambda x, y: x.clone(),
    lambda x, y: x.clone(memory_format=torch.contiguous_format),
    lambda x, y: x.contiguous(),
    lambda x, y: torch.empty_like(x),
    lambda x, y: x.new_zeros(2, 3),
    lambda x, y: x.repeat(1, 2, 1),
    lambda x, y: x.tril().flip(0),
    lambda x, y: x.gather(1, x.abs().to(torch.int64) % 4),
    lambda x, y: x.index_select(2, torch.tensor([1, 1])),
    lambda x, y: torch.view_as_real(torch.complex(x, x)),
    lambda x, y: torch.complex(x, x).abs(),
    lambda x, y: x.view(torch.int32) if x.stride(-1) == 1 else x,
    lambda x, y: torch.linalg.qr(x),
    lambda x, y: x.nan_to_num().clamp(0, 1).square().sqrt(),
    lambda x, y: (x.is_contiguous(), x.dim(), x.numel(), x.is_floating_point(), x.element_size()),
]


@settings(max_examples=350)
@given(st.sampled_from(FUNCTIONS), st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(LAYOUTS)), st.booleans())
def test_operators_give_what_they_give_for_real_tensors(function: Any, one: str, other: str, grad: bool) -> None:
    x, y = LAYOUTS[one](torch.randn(3, 4, 4)).detach(), LAYOUTS[other](torch.randn(4, 4)).detach()
    x.requires_grad_(grad)
    y.requires_grad_(grad)
    twins = MetaTensor.like(x), MetaTensor.like(y)
    try:
        expected = function(x, y)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            function(*twins)
        return
    got = function(*twins)
    assert_same(expected, got)
    outputs = [t for t in optree.tree_leaves(expected) if isinstance(t, torch.Tensor) and t.requires_grad]
    if outputs:
        gradients = torch.autograd.grad(outputs, [x, y], [t.detach() for t in outputs], allow_unused=True)
        outputs = [t for t in optree.tree_leaves(got) if isinstance(t, torch.Tensor) and t.requires_grad]
        got = torch.autograd.grad(outputs, twins, [t.detach() for t in outputs], allow_unused=True)
        assert_same(gradients, got)


@pytest.mark.parametrize("function", FUNCTIONS[:10])
def test_every_layout(function: Any) -> None:
    for layout in LAYOUTS.values():
        x, y = layout(torch.randn(3, 4, 4)), layout(torch.randn(4, 4))
        assert_same(function(x, y), function(MetaTensor(x), MetaTensor(y)))


IN_PLACE: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.t_(),
    lambda x: x.transpose_(0, 1),
    lambda x: x.unsqueeze_(1),
    lambda x: x.unsqueeze_(0).squeeze_(0),
    lambda x: x.unsqueeze_(0).squeeze_(),
    lambda x: x.swapaxes_(0, 1),
    lambda x: x.as_strided_((2, 2), (1, 3), 1),
    lambda x: x.resize_(5, 7),
    lambda x: x.resize_(2),
    lambda x: x.resize_as_(torch.empty(2, 6)),
    lambda x: x.set_(torch.empty(3, 5).t()),
    lambda x: x.mul_(2),
    lambda x: x.t().add_(1),
    lambda x: x[0].zero_(),
    lambda x: x.copy_(torch.ones(1, 3, dtype=torch.int8)),
    lambda x: x.fill_(3).sub_(x),
    lambda x: x.normal_(),
    lambda x: x.masked_fill_(torch.ones(4, 1, dtype=torch.bool), 1.0),
    lambda x: x.index_put_((torch.tensor([0, 1]),), torch.zeros(3)),
    lambda x: x.scatter_(1, torch.zeros(2, 1, dtype=torch.int64), 1.0),
]


@pytest.mark.parametrize("function", IN_PLACE)
def test_in_place_operators(function: Any) -> None:
    x = torch.zeros(4, 3)
    twin = MetaTensor(x)
    real, meta = function(x), function(twin)
    assert_same((x, real), (twin, meta))
    assert (real is x) == (meta is twin)
    assert (real.untyped_storage()._cdata == x.untyped_storage()._cdata) == (Storage.of(meta) is Storage.of(twin))
    assert_same(x * 2, twin * 2)


def test_out_arguments() -> None:
    x, y = torch.randn(4, 3), torch.randn(3, 4).T
    for size in ((4, 3), (0,)):
        out, twin_out = torch.empty(size), MetaTensor(torch.empty(size))
        real, meta = torch.add(x, y, out=out), torch.add(MetaTensor(x), MetaTensor(y), out=twin_out)
        assert meta is twin_out and real is out
        assert_same(out, twin_out)
    pairs = [(torch.empty(4), torch.empty(4, dtype=torch.int64)) for _ in range(2)]
    twins = tuple(MetaTensor(t) for t in pairs[1])
    torch.max(x, 1, out=pairs[0])
    values, indices = torch.max(MetaTensor(x), 1, out=twins)
    assert values is twins[0] and indices is twins[1]
    assert_same(pairs[0], twins)


def test_views_share_a_storage() -> None:
    x = MetaTensor(torch.zeros(4, 3))
    views = [x.t(), x[1:], x.view(12)[2:].view(2, 5), x.detach(), *x.unbind(1), *x.split(2), x.expand(2, 4, 3)]
    assert all(Storage.of(v) is Storage.of(x) for v in views)
    others = [x + 1, x.clone(), x.reshape(-1) * 1, x.t().contiguous(), x.new_empty(3)]
    assert len({Storage.of(v) for v in [x, *others]}) == 6


def test_a_tensor_of_the_meta_device_may_be_written() -> None:
    """It has no data either; models make some with `torch.zeros(..., device=x.device)`, and write into them."""
    x = MetaTensor(torch.empty(10**9, 3, device="meta")).requires_grad_()
    made = torch.zeros(10**9, 3, device=x.device)
    assert made.copy_(x) is made
    made[torch.arange(2)] = 1.0
    made.sum().backward()
    assert x.grad is not None and x.grad.is_meta and x.grad.shape == (10**9, 3)
    with pytest.raises(MutationError, match="would be written into a real one"):
        torch.zeros(3).copy_(MetaTensor(torch.ones(3)))
