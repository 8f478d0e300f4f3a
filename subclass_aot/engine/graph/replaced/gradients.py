"""Notes that a program reads or changes the `.grad` of an input: whether there is one is a fact of the call then.

A leaf notes it itself. Wrappers and tensors of plain subclasses are classes of others.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.errors import UnreadableWrapperError
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta import MetaTensor


def _noted(recorder: Recorder, tensor: Any, *value: object) -> Any:
    if type(tensor) is not MetaTensor:
        leaves = []
        with suppress(UnreadableWrapperError):  # one that the function made, which is no input
            leaves = FlattenPlan.leaves_of(_torch.plain_subclasses.leaf_of(tensor))
        for leaf in leaves:
            if type(leaf) is MetaTensor:
                leaf.grad  # noqa: B018  # the read is noted
    return NotImplemented


_gradient: Any = torch.Tensor.grad  # whose methods are functions of torch

GRADIENTS: dict[Any, Callable[..., Any]] = dict.fromkeys(
    (_gradient.__get__, _gradient.__set__, _gradient.__delete__), _noted
)
"""What is called in place of functions of torch, with the recorder as first argument."""
