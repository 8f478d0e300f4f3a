"""Results that share fields with what they are views of, where autograd does not know that they are views.

They are regenerated at each call, as views that autograd knows are: so a write into one finds the whole. See
Note [Fields shared by views].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.trace.autograd_graph import has_history
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.kit.views import Chain
from subclass_aot.kit.wrapper import sharing_base
from subclass_aot.meta import MetaTensor, Storage

SharedView = tuple[torch.Tensor, Chain]
"""What a result is a view of, and how it is made of that."""


def shared_views(results: Sequence[Any], inputs: Sequence[torch.Tensor], autograd_views: bool) -> dict[int, SharedView]:
    """Returns the results that are such views, by id.

    Args:
        results: Of the traced function.
        inputs: The traced inputs: what `detach` gives of one stands for it.
        autograd_views: Whether views that autograd knows are regenerated as it saw them.
    """
    found: dict[int, SharedView] = {}
    for result in results:
        view = sharing_base(result)
        if view is None or has_history(result):  # which a regenerated view would not have
            continue
        base, chain = view
        whole = next((x for x in inputs if type(x) is type(base) and _is_alias(base, x)), base)
        if not autograd_views or _torch.autograd.base_of(result) is None or whole is not base:
            found[id(result)] = whole, chain.without_history()
    return found


def replay_of(clean: torch.Tensor) -> Chain:
    """Returns what regenerates a view, of one that was made of a tensor of no trace."""
    found = sharing_base(clean)
    assert found is not None, "it has the sizes of what is a view of another"
    return found[1].without_history()


def _is_alias(tensor: torch.Tensor, of: torch.Tensor) -> bool:
    """Returns whether a wrapper has the very memory of another of its class, as what `detach` gives."""
    (one, inner), (other, outer) = FlattenPlan.read([tensor]), FlattenPlan.read([of])
    return tensor is of or (
        one.metas == other.metas
        and all(
            isinstance(x, MetaTensor)
            and Storage.of(x) is Storage.of(y)
            and (x.meta_spec, x.meta_spec.offset) == (y.meta_spec, y.meta_spec.offset)
            for x, y in zip(inner, outer, strict=True)
            if isinstance(y, MetaTensor)
        )
    )
