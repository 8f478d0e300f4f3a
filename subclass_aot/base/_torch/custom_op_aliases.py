"""Custom operators that return what their schemas deny: an argument, or a view of one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from subclass_aot.base._torch.dispatch import DispatchMode
from subclass_aot.base._torch.operators import Operator, is_overload

TRUSTED = frozenset(
    {
        "aten", "prim", "prims", "subclass_aot", "_c10d_functional", "_c10d_functional_autograd", "c10d", "onednn",
        "fsdp", "inductor",
    }
)  # fmt: skip
"""Libraries whose operators torch does not check either, and our own, which copies what it writes."""


def returns_new_tensors(func: object) -> bool:
    """Returns whether the schema of a custom operator says that it returns new tensors only."""
    if not is_overload(func) or func.namespace in TRUSTED or func._schema._is_view_op():
        return False
    returns = func._schema.returns
    return bool(returns) and all(each.alias_info is None for each in returns)


def is_checked() -> bool:
    """Returns whether torch's setting has the first run of a graph checked. A torch without the setting checks."""
    return bool(_setting("check_custom_op_aliasing", True))


def _setting(name: str, otherwise: bool) -> Any:
    """Returns a setting of torch; torch does not import the module that has it before it compiles."""
    from torch._functorch import config

    return getattr(config, name, otherwise)


class AliasCheck(DispatchMode):
    """Finds custom operators that return aliases, or raises, as torch's setting says.

    AOTAutograd has a mode of its own for it (torch 2.13), with the same words. The comparison of storages is private.

    Args:
        operators: The operators that are compared.

    Attributes:
        found: What to warn of.
    """

    def __init__(self, operators: Collection[object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operators = operators
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Operator, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self._operators:
            try:
                torch._library.utils._c_check_aliasing_constraint(func.name(), args, kwargs or {}, result)
            except RuntimeError as error:
                if _setting("error_on_custom_op_aliasing", False):
                    raise
                self.found.append(
                    f"{error} This is deprecated and will become an error in a future version of PyTorch."
                )
        return result
