"""How nodes are made: what stands in `meta["val"]`, and what they are called."""

from __future__ import annotations

from typing import Any

from subclass_aot import _torch
from subclass_aot.codegen import identifier
from subclass_aot.meta import MetaTensor, Spec, new_leaf


def val_of(spec: Spec) -> MetaTensor:
    """The tensor without data that stands for `spec` in `node.meta["val"]`: one per spec."""
    vals = _vals if spec.solver is None else vars(spec.solver).setdefault("subclass_aot_vals", {})
    val: MetaTensor | None = vals.get(spec)
    if val is None:
        val = vals[spec] = new_leaf(spec)
    return val


def name_of(func: _torch.Operator) -> str:
    """A node name for an operator, `add` for `aten.add.Tensor`, as it stands in printed graphs."""
    name = _names.get(func)
    if name is None:
        name = _names[func] = identifier(_torch.schema_of(func).name.split("::")[-1])
    return name


_vals: dict[Spec, MetaTensor] = {}
_names: dict[Any, str] = {}
