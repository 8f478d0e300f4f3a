"""Wrappers in the rest of torch: autograd, parameters, modules, optimizers, `torch.compile`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.kit.wrapper import Outer, WrapperTensor


class Pair(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor


class Tagged(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]
    shift: torch.Tensor | None = None
    tag: int = 0


class Scaled(WrapperTensor, views="broadcast"):
    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale

    def from_plain(self, plain: torch.Tensor) -> Scaled:
        return Scaled((plain / self.scale).round().to(self.codes.dtype), self.scale)


def pair(*size: int, seed: int = 0) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    return Pair(torch.randn(size, generator=generator), torch.randn(size, generator=generator))


def scaled() -> Scaled:
    return Scaled(torch.arange(12).view(3, 4), torch.full((3, 1), 0.5))


def linear(seed: int = 0) -> nn.Linear:
    """A linear layer whose weight and bias are wrappers."""
    module = nn.Linear(4, 3)
    module.weight, module.bias = nn.Parameter(pair(3, 4, seed=seed)), nn.Parameter(pair(3, seed=seed + 1))
    return module


def halves(module: nn.Linear) -> list[nn.Linear]:
    """The same layer for each inner tensor."""
    result = []
    for name in ("left", "right"):
        half = nn.Linear(4, 3)
        half.weight = nn.Parameter(getattr(module.weight, name).detach().clone())
        half.bias = nn.Parameter(getattr(module.bias, name).detach().clone())
        result.append(half)
    return result


def test_parameter_and_gradient_are_of_the_class() -> None:
    module = linear()
    assert type(module.weight) is Pair and isinstance(module.weight, nn.Parameter)
    left, right = halves(module)
    x = torch.randn(2, 4)
    module(x).square().sum().backward()
    left(x).square().sum().backward()
    right(x).square().sum().backward()
    assert type(module.weight.grad) is Pair
    torch.testing.assert_close(module.weight.grad.left, left.weight.grad)
    torch.testing.assert_close(module.bias.grad.right, right.bias.grad)


OPTIMIZERS = [
    (optimizer, options)
    for optimizer, common in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.AdamW, {"amsgrad": True}))
    for options in ({**common, "foreach": False}, {**common, "foreach": True}, {**common, "fused": True})
]


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
def test_optimizers_update_as_each_inner_tensor_alone(optimizer: Any, options: dict[str, Any]) -> None:
    module, dense = linear(), nn.Linear(4, 4)
    dense.weight.requires_grad_(False)
    modules = [module, *halves(module)]
    for m in modules:
        parameters = [*m.parameters(), nn.Parameter(dense.bias.detach().clone())]
        step = optimizer(parameters, lr=0.1, weight_decay=0.01, **options)
        for seed in range(3):
            x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
            m(x).square().mean().backward()
            parameters[-1].sum().backward()
            nn.utils.clip_grad_value_(m.parameters(), 0.5)
            step.step()
            step.zero_grad()
    torch.testing.assert_close(module.weight.left, modules[1].weight.detach())
    torch.testing.assert_close(module.bias.right, modules[2].bias.detach())


def test_module_to_and_state_dict() -> None:
    module, other = linear(), linear(seed=5)
    module.to(torch.float64)
    assert module.weight.dtype == module.weight.left.dtype == torch.float64 and type(module.weight) is Pair
    assert isinstance(module.weight, nn.Parameter) and module.weight.requires_grad
    other.to(torch.float64).load_state_dict(module.state_dict())
    torch.testing.assert_close(other.weight.right, module.weight.right)
    other.load_state_dict({name: value.clone() for name, value in module.state_dict().items()}, assign=True)
    assert type(other.weight) is Pair
    other.load_state_dict({"weight": torch.ones(3, 4), "bias": torch.ones(3)})
    assert other.weight.left.sum() == other.weight.right.sum() == 12
    assert module.to("meta").weight.left.device.type == "meta"


def test_dense_state_into_a_wrapper_that_can_take_it() -> None:
    module = nn.Linear(4, 3, bias=False)
    module.weight = nn.Parameter(scaled(), requires_grad=False)
    codes = module.weight.codes
    module.load_state_dict({"weight": torch.full((3, 4), 3.0)})
    assert module.weight.codes is codes and codes.unique().item() == 6


def test_assigning_data_replaces_the_inner_tensors() -> None:
    x, y = pair(3), pair(5)
    x.data = y
    assert x.shape == (5,) and x.left is y.left
    assert type(x.data) is Pair and x.data.left.data_ptr() == x.left.data_ptr()
    with pytest.raises(TypeError, match="the data of a Pair cannot be replaced by a Tensor"):
        x.data = torch.zeros(3)


def test_gradients_that_are_not_there() -> None:
    class Ignores(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, first: Any, second: Any) -> Any:
            assert type(first) is Pair and second.shape == first.shape
            return first + second

    x = pair(3).requires_grad_()
    first, _ = Ignores.apply(x)
    first.sum().backward()
    assert x.grad.left.tolist() == [1, 1, 1]


def test_autograd_sees_views_and_writes() -> None:
    x = pair(3, 4).requires_grad_()
    y = x * 1
    y.t()[0].mul_(5)
    y.sum().backward()
    assert x.grad.right[:, 0].tolist() == [5, 5, 5] and x.grad.right[:, 1].tolist() == [1, 1, 1]
    y = x * x
    with torch.no_grad():
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


VIEWS = {
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(-1),
    "reshape of rows": lambda x: x.reshape(3, 1, 4),
    "flatten": lambda x: x.flatten(),
    "mT": lambda x: x.mT,
    "narrow": lambda x: x.narrow(0, 0, 1),
    "chunk": lambda x: x.chunk(2)[0],
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "movedim": lambda x: x.movedim(0, 1),
    "split": lambda x: x.split([1, 2])[1],
    "swapaxes": lambda x: x.swapaxes(0, 1).mT,
    "twice": lambda x: x.reshape(-1).reshape(4, 3),
}


def ones(*size: int) -> Pair:
    return Pair(torch.ones(size), torch.ones(size))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("make", [torch.ones, lambda *size: Int8Weight.from_float(torch.ones(size)), ones])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_write_into_a_view_counts_as_a_write_of_the_whole(view: Any, make: Any, mode: Any) -> None:
    whole = make(3, 4)
    with mode():
        view(whole).mul_(2)
    assert whole._version == 1
    with torch.inference_mode():
        inference = make(3, 4)
        view(inference).mul_(2)
    assert inference.is_inference()


def test_inference_mode() -> None:
    module = linear()
    x = torch.randn(2, 5, 4)
    expected = module(x)
    with torch.inference_mode():
        actual = module(x)
        assert type(actual) is Pair and actual.is_inference()
        torch.testing.assert_close(nn.functional.linear(x, scaled()), nn.functional.linear(x, scaled().to_plain()))
    torch.testing.assert_close(actual.left, expected.left.detach())


def test_checkpoint() -> None:
    module = linear()
    x = torch.randn(2, 4)
    torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False).sum().backward()
    assert type(module.weight.grad) is Pair


def test_share_memory() -> None:
    x = pair(3)
    assert x.share_memory_() is x and x.left.is_shared() and x.right.is_shared()


def test_tangent_hooks() -> None:
    x = scaled()
    assert x.__coerce_tangent_metadata__() is x
    assert x.__coerce_same_metadata_as_tangent__(None) is x
    assert x.__coerce_same_metadata_as_tangent__(None, Scaled) is x
    assert x.__coerce_same_metadata_as_tangent__((1,)) is None
    torch.testing.assert_close(x.__coerce_same_metadata_as_tangent__(None, torch.Tensor), x.to_plain())
    assert pair(3).__coerce_same_metadata_as_tangent__(None, torch.Tensor) is None


@pytest.fixture
def compiled() -> Any:
    torch._dynamo.reset()
    yield lambda function: torch.compile(function, backend="aot_eager", fullgraph=True)
    torch._dynamo.reset()


def test_compile_with_wrapper_inputs(compiled: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        z = (x + y).sin().t()
        return z.reshape(-1), z[0] * 2, x.view(4, 3)

    x, y = pair(3, 4), pair(3, 4, seed=1)
    for actual, expected in zip(compiled(program)(x, y), program(x, y), strict=True):
        assert type(actual) is Pair and actual.shape == expected.shape
        torch.testing.assert_close(actual.left, expected.left)
        torch.testing.assert_close(actual.right, expected.right)


def test_compile_with_wrapper_parameters(compiled: Any) -> None:
    module, reference = linear(), linear()
    x = torch.randn(2, 4)
    compiled(module)(x).square().sum().backward()
    reference(x).square().sum().backward()
    assert type(module.weight.grad) is Pair
    torch.testing.assert_close(module.weight.grad.right, reference.weight.grad.right)


def test_compile_with_writes(compiled: Any) -> None:
    def program(x: Any) -> Any:
        x[0].mul_(2)
        return x + 1

    x, reference = pair(3, 4), pair(3, 4)
    actual, expected = compiled(program)(x), program(reference)
    torch.testing.assert_close(x.right, reference.right)
    torch.testing.assert_close(actual.right, expected.right)


def test_compile_that_makes_wrappers(compiled: Any) -> None:
    def program(a: torch.Tensor) -> Any:
        return (Pair(a, a + 1) * 2).sum(0)

    actual = compiled(program)(torch.ones(2, 3))
    assert actual.left.tolist() == [4, 4, 4] and actual.right.tolist() == [8, 8, 8]


def test_compile_with_outer_rule_and_fallbacks(compiled: Any) -> None:
    def program(x: torch.Tensor, weight: Any) -> Any:
        return nn.functional.linear(x, weight).relu(), weight.t()

    x = torch.randn(2, 4)
    actual, expected = compiled(program)(x, scaled()), program(x, scaled())
    torch.testing.assert_close(actual[0], expected[0])
    assert type(actual[1]) is Scaled and actual[1].scale.shape == (1, 3)


def test_compile_recompiles_for_context_presence_and_size(compiled: Any) -> None:
    @compiled
    def program(x: Any) -> Any:
        return x * 2 + x.tag

    calls = [
        Tagged([torch.ones(2)]),
        Tagged([torch.ones(2)], tag=1),
        Tagged([torch.ones(2)], torch.ones(2), tag=1),
        Tagged([torch.ones(2), torch.ones(2)]),
        Tagged([torch.ones(5)]),
    ]
    for call in [*calls, *calls]:
        result = program(call)
        assert result.__tensor_flatten__() == call.__tensor_flatten__() and result.shape == call.shape
        assert result.parts[-1].tolist() == [2 + call.tag] * len(call)
        assert (result.shift is None) == (call.shift is None)


def test_compile_with_dynamic_sizes() -> None:
    torch._dynamo.reset()
    program = torch.compile(lambda x: x.t() * x.shape[0], backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (3, 5, 8):
        assert program(pair(rows, 4)).left.shape == (4, rows)
    torch._dynamo.reset()


def test_it_has_no_memory_for_other_libraries() -> None:
    with pytest.raises(BufferError, match="has no memory itself: give its inner tensors"):
        torch.from_dlpack(TwoTensor(torch.ones(2), torch.ones(2)))
    with pytest.raises(BufferError, match=r"has no memory itself: .to_plain\(\) makes a dense tensor"):
        Int8Weight.from_float(torch.ones(2, 2)).__dlpack__()
