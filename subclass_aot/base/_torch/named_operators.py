"""Operators by their names."""

from __future__ import annotations

from typing import Any

import torch


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
