"""Views of classes with `views="blocks"`: an element of a field stands for a block of the tensor, as packed codes do.

Note [Blocks]
~~~~~~~~~~~~~
Along each dim, the size of such a field divides that of the tensor, and an element stands for as many of the tensor's
as the ratio says. What begins and ends between blocks is cut out of the field; a view that parts a block, turns dims
round or joins them cannot be: it reads through the whole, see Note [Views that read through]. A row alone is such a
view, too, of the tensor that has this row only: what a field means without one of its dims nobody has said.
"""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.kit.wrapper.declare.construct import made_of
from subclass_aot.kit.wrapper.declare.outer import outer_of
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.cuts import CUTS, SEVERAL, WITHOUT_DIM, cuts_of
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow
from subclass_aot.kit.wrapper.layout.shared_fields import shares_with
from subclass_aot.kit.wrapper.layout.views import RULES, view_fields
from subclass_aot.kit.wrapper.serve.plain import read_through

aten: Any = torch.ops.aten


def cut_views(func: Operator, wrapper: Wrapper, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes the view `func(wrapper, *args, **kwargs)` of a class with `views="blocks"`, or each of several.

    Raises:
        CannotFollow: It does not begin and end between blocks.
    """
    if func not in CUTS:
        raise CannotFollow(f"{func} does more than to cut between the blocks that an element of a field stands for")
    cuts = [_cut(wrapper, *cut) for cut in cuts_of(func, wrapper.shape, args, kwargs)]
    if func not in WITHOUT_DIM:
        return cuts if func in SEVERAL else cuts[0]
    if any(shares_with(cut, wrapper) for cut in cuts):
        raise CannotFollow("the view shares a field with the rest of the tensor")
    dim = args[0] if args else kwargs.get("dim", 0)
    rows = [read_through(aten.select.int, cut, (dim, 0), {}) for cut in cuts]
    return rows if func in SEVERAL else rows[0]


def _cut(wrapper: Any, dim: int, start: int, end: int, step: int) -> Any:
    if step != 1:
        raise CannotFollow(f"steps of {step} part blocks")
    cls = type(wrapper)
    func = aten.slice.Tensor
    state = view_fields(func, RULES[func], wrapper, (dim, start, end), {}) | wrapper.__wrapper_state__()
    size, stride = [*wrapper.shape[:dim], end - start, *wrapper.shape[dim + 1 :]], wrapper.stride()
    outer = outer_of(cls, state)
    if list(outer.size) != size:
        given = list(outer.size)
        raise CannotFollow(f"the class says that its fields are then those of a tensor of {given}, and not of {size}")
    offset = wrapper.storage_offset() + start * stride[dim]
    made = made_of(cls, state, outer._replace(size=size, stride=stride, storage_offset=offset))
    _torch.wrappers.alias_outer_storage(made, wrapper)
    return made
