"""Functions of torch that go their own way in C++, and what is called in their place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from subclass_aot.base import _torch
from subclass_aot.meta import places
from subclass_aot.meta.listener import Answers
from subclass_aot.meta.rules.ctc import LOSSES

_NEEDED: dict[Any, Callable[..., Any]] = {
    _torch.modules.pad_packed_sequence: places.pad_sequences,
    torch.sparse_coo_tensor: places.sparse_tensor_of_program,
    **{layer: partial(places.recurrent_layer, layer, False) for layer in _torch.modules.recurrent_layers},
    **LOSSES,
}
RECURRENT_WITH_CUDNN = {
    layer: partial(places.recurrent_layer, layer, True) for layer in _torch.modules.recurrent_layers
}
"""What is called in place of recurrent layers in a run without data."""


class Replaced(TorchFunctionMode):
    """While it is on, some functions of torch are made of others, above autograd and wrapper classes.

    Args:
        stream: The stream that runs the others; it is the first argument of each rule.
        rules: Rules beside those that every stream needs. Where one returns `NotImplemented`, the function is called.
    """

    def __init__(self, stream: Answers, rules: Mapping[Any, Callable[..., Any]] | None = None) -> None:
        super().__init__()
        self.stream = stream
        self.rules = {**_NEEDED, **(rules or {})}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        rule = self.rules.get(func)
        if rule is not None:
            with self:
                result = rule(self.stream, *args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        return func(*args, **(kwargs or {}))

    def __eq__(self, other: object) -> bool:
        """Compares what is replaced: programs run alike under two that are equal, so what was compiled serves under
        both.
        """
        return type(other) is Replaced and other.rules == self.rules

    def __hash__(self) -> int:
        return hash(Replaced)
