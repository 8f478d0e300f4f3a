"""What an operator's schema says about aliasing, in the form in which dispatch asks for it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot import _torch


@dataclass(frozen=True, slots=True)
class Facts:
    """What the schema of one operator promises.

    Args:
        names: The parameters' names, in order.
        lists: The parameters that are lists of tensors.
        written: The parameters that are written to.
        viewed: The parameter that the outputs are views of, or "".
        returns: For each return: "tensor", "list" (of tensors) or "other".
        returned: For each return, the written parameter that it is; empty where the returns are new.
        changes_outer: Whether it changes the sizes or strides of what it writes to.
    """

    names: tuple[str, ...]
    lists: frozenset[str]
    written: frozenset[str]
    viewed: str
    returns: tuple[str, ...]
    returned: tuple[str, ...]
    changes_outer: bool

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name."""
        return {**dict(zip(self.names, args, strict=False)), **kwargs}


_RETURNS = {"Tensor": "tensor", "Optional[Tensor]": "tensor", "List[Tensor]": "list"}


@functools.cache
def facts_of(func: Any) -> Facts:
    """The facts of one operator overload."""
    schema = _torch.schema_of(func)
    marked = [argument for argument in schema.arguments if argument.alias_info is not None]
    written = [argument for argument in marked if argument.alias_info.is_write]
    returned = []
    for value in schema.returns:
        if value.alias_info is not None and value.alias_info.is_write:
            mark = value.alias_info.before_set
            returned.append(next(argument.name for argument in written if argument.alias_info.before_set == mark))
    return Facts(
        names=tuple(argument.name for argument in schema.arguments),
        lists=frozenset(a.name for a in schema.arguments if str(a.type) in ("List[Tensor]", "List[Optional[Tensor]]")),
        written=frozenset(argument.name for argument in written),
        viewed=marked[0].name if func.is_view else "",
        returns=tuple(_RETURNS.get(str(value.type), "other") for value in schema.returns),
        returned=tuple(returned),
        changes_outer=torch.Tag.inplace_view in func.tags,
    )
