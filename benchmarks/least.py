"""The least that torch asks of a subclass in Python: what no bookkeeping in Python can go below."""

from __future__ import annotations

import copy
from typing import Any

import optree
import torch
from torch import Tensor, fx, nn

from benchmarks.by_hand import SIZE, make

DISPATCH = "a dispatch that only makes a tensor"
DISPATCHES = "a dispatch that only makes tensors"
FUNCTION = "autograd.Function, wrappers"
COPY = "its nodes copied by torch.fx"


class Maker(Tensor):
    """Answers each operator with a new tensor of one size, and looks at nothing."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Makes a tensor."""
        return make(cls, SIZE)


class Repeater(Tensor):
    """Answers the operators of a program with new tensors like those that it needed the first time.

    Attributes:
        answers: What each operator gave, in order: sizes, strides and dtypes; None for its first argument.
        position: Of the operator that comes next.

    All are on "meta": how torch takes `scaled_dot_product_attention` apart depends on the device.
    """

    answers: list[Any]
    position = -1

    @classmethod
    def like(cls, x: Tensor) -> Tensor:
        """A tensor like another, and without data."""
        made: Tensor = make(cls, x.size(), strides=x.stride(), dtype=x.dtype, device="meta")
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Repeats an answer, or computes it with tensors on "meta" as long as there is none."""
        if cls.position < 0:
            return cls._first(func, args, kwargs or {})
        answer = cls.answers[cls.position]
        cls.position += 1
        if answer is None:
            return args[0]
        if type(answer) is tuple:
            return make(cls, answer[0], strides=answer[1], dtype=answer[2], device="meta")
        return [x and make(cls, x[0], strides=x[1], dtype=x[2], device="meta") for x in answer]

    @classmethod
    def _first(cls, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        def meta(x: Any) -> Any:
            return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta") if type(x) is cls else x

        if func._schema.is_mutable:
            cls.answers.append(None)
            return args[0]
        given, named = optree.tree_map(meta, (args, kwargs), none_is_leaf=True)
        result = func(*given, **named)
        parts = [result] if isinstance(result, Tensor) else list(result)
        facts = [None if x is None else (x.size(), x.stride(), x.dtype) for x in parts]
        cls.answers.append(facts[0] if isinstance(result, Tensor) else facts)
        return optree.tree_map(cls.like, result)


def repeated(model: nn.Module, images: Tensor) -> tuple[nn.Module, Tensor]:
    """A model like one on "meta", and its input, of `Repeater`; begin each run of it by `begin`."""
    Repeater.answers, Repeater.position = [], -1
    model = copy.deepcopy(model)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(Repeater.like(parameter)))
    Repeater.answers.clear()
    return model, Repeater.like(images)


def begin() -> None:
    """Starts the next run of the program: the first one is recorded."""
    Repeater.position = 0 if Repeater.answers else -1


def copied(graph: fx.Graph) -> fx.Graph:
    """A graph with copies of all nodes."""
    made = fx.Graph()
    made.graph_copy(graph, {})
    return made
