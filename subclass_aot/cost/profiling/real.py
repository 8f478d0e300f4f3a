"""Operators on real tensors, and changes of their memory, for listeners."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.base.put_back import PutBack
from subclass_aot.meta import Listener, MetaTensor, Storage


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
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # their classes run operators on what is within, and these count
        if effects_of(func).composite:  # autograd takes these apart, and is off within a wrapper's class
            with self:
                return func.decompose(*args, **kwargs)
        result = func(*args, **kwargs)
        tree: Any = (args, kwargs, result)
        if not any(isinstance(x, MetaTensor) for x in optree.tree_iter(tree, none_is_leaf=True)):
            Listener.tell(None, func, args, kwargs, result)
        return result


@contextmanager
def resizes_noted() -> Iterator[None]:
    """Calls listeners in the block also when a program changes the size of a storage, as FSDP frees parameters."""
    cls: Any = torch.UntypedStorage
    resize = cls.resize_

    def resize_(memory: torch.UntypedStorage, size: int) -> Any:
        result = resize(memory, size)
        Storage.note_size(memory)
        return result

    with PutBack(partial(setattr, cls, "resize_", resize) if "resize_" in vars(cls) else partial(_unset, cls)):
        cls.resize_ = resize_
        yield


def _unset(cls: Any) -> None:
    if "resize_" in vars(cls):  # it is inherited
        del cls.resize_
