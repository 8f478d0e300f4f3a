"""Wrappers of other libraries that repeat their `requires_grad` in the context, as DTensor does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from subclass_aot import aot_compile
from subclass_aot.testing import check_compiled


class Tells(torch.Tensor):
    a: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, a.shape, a.stride(), a.storage_offset(), dtype=a.dtype)
        made.a = a
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return "Tells"

    def __tensor_flatten__(self) -> Any:
        return ["a"], {"requires_grad": self.requires_grad}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["a"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def plain(x: Any) -> Any:
            return x.a if isinstance(x, Tells) else x

        result = func(*torch.utils._pytree.tree_map(plain, args), **torch.utils._pytree.tree_map(plain, kwargs or {}))
        made = torch.utils._pytree.tree_map_only(torch.Tensor, cls, result)
        return return_and_correct_aliasing(func, args, kwargs or {}, made)


PROGRAMS: dict[str, Any] = {
    "arithmetic": lambda x: (x * 2).sin(),
    "itself": lambda x: x,
    "views": lambda x: (x * 2).chunk(2, 1),
    "views of an input": lambda x: x.unbind(0)[0],
    "a sum": lambda x: x.sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("given", ["leaf", "computed", "frozen"])
def test_as_in_eager_mode(name: str, dynamic: bool, given: str) -> None:
    x = Tells(torch.rand(4, 6)).requires_grad_(given != "frozen")
    check_compiled(PROGRAMS[name], [x * 1 if given == "computed" else x], dynamic=dynamic, tries=0)


def test_sizes_that_change_are_symbols_at_the_second_call() -> None:
    compiled = aot_compile(PROGRAMS["arithmetic"])
    for rows in (4, 5, 6, 7):
        x = Tells(torch.rand(rows, 6)).requires_grad_()
        torch.testing.assert_close(compiled(x).a, (x.a * 2).sin())
    assert "2 signatures" in str(compiled.explain())
