"""Operators by their names, and what kinds of values they take."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot._torch.operators import Operator

_PLAIN_TYPES = frozenset(
    {"Tensor", "int", "float", "bool", "number", "Scalar", "complex", "SymInt", "str", "Device", "Layout",
     "MemoryFormat", "ScalarType", "Generator"}
)  # fmt: skip


def operator_named(namespace: str, name: str, overload: str) -> Any:
    """Returns the overload of that name, or None.

    `torch.ops` has other attributes, too, and the dispatcher knows which are operators. It has no public query.
    """
    try:
        torch._C._get_schema(f"{namespace}::{name}", "" if overload == "default" else overload)
        found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    except (AttributeError, RuntimeError):
        return None
    return found if isinstance(found, torch._ops.OpOverload) else None


def is_of_plain_values(func: Operator) -> bool:
    """Returns whether an operator takes and gives tensors, numbers and words for kinds of tensors: it opens no files,
    say.

    The schema says it, of which there is no public form.
    """
    schema = func._schema
    kinds = [argument.type for argument in (*schema.arguments, *schema.returns)]
    if any("file" in argument.name for argument in schema.arguments):
        return False
    touches = any("Tensor" in str(kind) for kind in kinds)
    return touches and all(_element(kind) in _PLAIN_TYPES for kind in kinds)


def _element(kind: object) -> str:
    while isinstance(kind, torch.OptionalType | torch.ListType):
        kind = kind.getElementType()
    return str(kind)
