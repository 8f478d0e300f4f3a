"""Results that one operator gives as views (`unbind`, `split`, `chunk`): one call of it, with one gradient function."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.testing import check_compiled

aten = torch.ops.aten
PROGRAMS = {
    "unbind": lambda x: x.unbind(0),
    "split": lambda x: x.split(2),
    "sizes": lambda x: x.split([1, 2, 1]),
    "chunk": lambda x: x.chunk(2, 1),
    "some": lambda x: x.unbind(0)[1::2],
    "twice": lambda x: (*x.unbind(0), *x.unbind(0)),
    "of a view": lambda x: x.t().unbind(0),
    "viewed": lambda x: [y.view(2, -1).t() for y in x.unbind(0)],
    "of each other": lambda x: [z for y in x.chunk(2) for z in y.unbind(0)],
    "with one beside": lambda x: (x.t(), *x.unbind(1), x[1:]),
    "of an intermediate": lambda x: (x * 2).unbind(0),
    "with the intermediate": lambda x: (y := x * 2, *y.split(2)),
    "without history": lambda x: [y.detach() for y in x.unbind(0)],
    "under no_grad": lambda x: torch.no_grad()(lambda: (*x.unbind(0), *x.split(1)))(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("grad", [True, False])
def test_as_in_eager_mode(name: str, grad: bool) -> None:
    x = torch.rand(4, 4, requires_grad=grad)
    check_compiled(PROGRAMS[name], [x])
    check_compiled(PROGRAMS[name], [x], dynamic=True)
    check_compiled(PROGRAMS[name], [TwoTensor(torch.rand(4, 4), torch.rand(4, 4)).requires_grad_(grad)])


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "count"),
    [("unbind", 1), ("split", 1), ("sizes", 1), ("chunk", 1), ("some", 1), ("twice", 2), ("of an intermediate", 1)],
)
def test_one_call_and_one_gradient_function(name: str, count: int) -> None:
    x, program = torch.rand(4, 4, requires_grad=True), PROGRAMS[name]
    torch.compiler.reset()
    for compiled in (aot_compile(program), torch.compile(program, backend="subclass_aot")):
        compiled(x)
        with _Counting() as counting:
            results = compiled(x)
        assert counting.count == count
        assert len({y.grad_fn for y in results}) == count == len({y.grad_fn for y in program(x)})


class OfItsOwnKind(torch.Tensor):
    """A wrapper whose operators take no plain tensors beside it, as those of DTensor do not."""

    def __new__(cls, a: torch.Tensor) -> OfItsOwnKind:
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device)  # type: ignore[attr-defined, no-any-return]

    def __init__(self, a: torch.Tensor) -> None:
        self.a = a

    def __tensor_flatten__(self) -> Any:
        return ["a"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return OfItsOwnKind(inner["a"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [x for x in torch.utils._pytree.tree_leaves(args) if isinstance(x, torch.Tensor)]
        if any(not isinstance(x, OfItsOwnKind) for x in tensors):
            raise RuntimeError(f"{func} got mixed torch.Tensor and OfItsOwnKind")
        unwrapped = torch.utils._pytree.tree_map_only(OfItsOwnKind, lambda x: x.a, args)
        return torch.utils._pytree.tree_map_only(torch.Tensor, OfItsOwnKind, func(*unwrapped, **(kwargs or {})))


@pytest.mark.parametrize("name", ["unbind", "split", "chunk"])
def test_gradients_of_a_class_that_takes_no_plain_tensors(name: str) -> None:
    torch.compiler.reset()
    for compiled in (aot_compile(PROGRAMS[name]), torch.compile(PROGRAMS[name], backend="subclass_aot")):
        x = OfItsOwnKind(torch.ones(4, 4)).requires_grad_()
        parts = compiled(x)
        torch.autograd.backward(parts, [OfItsOwnKind(torch.full(y.shape, i + 1.0)) for i, y in enumerate(parts)])
        z = torch.ones(4, 4, requires_grad=True)
        parts = PROGRAMS[name](z)
        torch.autograd.backward(parts, [torch.full(y.shape, i + 1.0) for i, y in enumerate(parts)])
        assert x.grad.a.equal(z.grad)  # type: ignore[union-attr]
