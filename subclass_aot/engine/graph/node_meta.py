"""Makes nodes: `meta["val"]`, and their names."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from weakref import WeakValueDictionary

from subclass_aot.base import _torch
from subclass_aot.base.codegen import identifier
from subclass_aot.meta import MetaTensor, Spec, new_leaf


def val_of(spec: Spec) -> MetaTensor:
    """Returns the tensor without data that stands for `spec` in `node.meta["val"]`: one per spec."""
    vals: MutableMapping[Spec, MetaTensor] = _vals
    if spec.solver is not None:  # each symbolic size holds it, where no garbage collector looks: it may not hold them
        vals = vars(spec.solver).setdefault("subclass_aot_vals", WeakValueDictionary())
    val = vals.get(spec)
    if val is None:
        val = vals[spec] = new_leaf(spec)
    return val


def name_of(func: _torch.operators.Operator) -> str:
    """Returns a node name for an operator, `add` for `aten.add.Tensor`, as it stands in printed graphs."""
    name = _names.get(func)
    if name is None:
        name = _names[func] = identifier(_torch.operators.schema_of(func).name.split("::")[-1])
    return name


_vals: dict[Spec, MetaTensor] = {}
_names: dict[Any, str] = {}
