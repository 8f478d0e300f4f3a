"""Operators on real tensors, for listeners."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot._torch.operators import Operator
from subclass_aot.meta import Listener, MetaTensor
from subclass_aot.operators import effects_of


class RealOperators(_torch.dispatch.DispatchMode):
    """Calls the listeners of this thread for operators on real tensors; those without data call them by themselves."""

    def __torch_dispatch__(
        self,
        func: Operator,
        types: Collection[type[torch.Tensor]],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        wrappers = [kind for kind in types if hasattr(kind, "__tensor_flatten__")]
        if wrappers:  # whose classes run operators on what is within, and these count
            with self:
                tried = (kind.__torch_dispatch__(func, types, args, kwargs) for kind in wrappers)
                return next((result for result in tried if result is not NotImplemented), NotImplemented)
        if effects_of(func).composite:  # autograd takes these apart, and is off within a wrapper's class
            with self:
                return func.decompose(*args, **kwargs)
        result = func(*args, **kwargs)
        tree: Any = (args, kwargs, result)
        if not any(isinstance(x, MetaTensor) for x in optree.tree_iter(tree, none_is_leaf=True)):
            Listener.tell(None, func, args, kwargs, result)
        return result
