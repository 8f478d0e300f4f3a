"""Wrappers of other libraries whose constructors keep another tensor than they are given, of the same memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from subclass_aot import aot_compile
from subclass_aot.errors import MutationError

STORES = {
    "detach": lambda a: a.detach(),
    "data": lambda a: a.data,
    "view": lambda a: a.view(a.shape),
    "slice": lambda a: a[:],
    "alias": torch.ops.aten.alias.default,
}
PROGRAMS = [lambda x: x * 2, lambda x: x.mul_(2), lambda x: x.view(-1), lambda x: (x.add_(1), x * 2)[1]]


def class_with(store: Any) -> Any:
    class Keeping(torch.Tensor):
        def __new__(cls, a: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype)  # type: ignore[attr-defined]

        def __init__(self, a: Any) -> None:
            self.a = store(a)

        def __tensor_flatten__(self) -> Any:
            return ["a"], None

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
            return Keeping(inner["a"])

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            args_inside, kwargs_inside = tree_map_only(Keeping, lambda x: x.a, (args, kwargs or {}))
            result = tree_map_only(torch.Tensor, Keeping, func(*args_inside, **kwargs_inside))
            return return_and_correct_aliasing(func, args, kwargs or {}, result)

    return Keeping


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", STORES)
def test_as_in_eager_mode(name: str, program: Any) -> None:
    cls = class_with(STORES[name])
    torch.compiler.reset()
    for compiled in (
        aot_compile(program),
        aot_compile(program, dynamic=True),
        torch.compile(program, backend="subclass_aot"),
    ):
        for n in (2, 2, 3):
            x, y = cls(torch.ones(n, 2)), cls(torch.ones(n, 2))
            assert compiled(x).a.equal(program(y).a) and x.a.equal(y.a)


def test_gradients() -> None:
    cls = class_with(STORES["detach"])
    x = cls(torch.full((2, 2), 3.0)).requires_grad_()
    torch.autograd.backward([aot_compile(lambda x: x * x)(x)], [cls(torch.ones(2, 2))])
    assert x.grad.a.tolist() == [[6, 6], [6, 6]]


def test_a_copy_is_refused() -> None:
    with pytest.raises(MutationError, match="or its constructor keeps a copy"):
        aot_compile(lambda x: x * 2)(class_with(torch.clone)(torch.ones(2)))
