"""View chains: how a view was made, as data: the operators that run when autograd regenerates it.

Autograd keeps the operators that made a view as functions, which are like any others and cannot be written down: one
that was pickled makes nothing. So they run once more, on a tensor without data, and what runs is noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.symbols import is_symbolic, lasting_key_of
from subclass_aot.views import Chain, Step, SymintAt


class RecordedViews(_torch.dispatch.DispatchMode):
    """Notes the operators that run in a `with` block."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ran: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(
        self,
        func: _torch.operators.AnyOperator,
        types: object,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Runs an operator."""
        result = func(*args, **(kwargs or {}))
        self._ran.append((func, tuple(args), dict(kwargs or {}), result))
        return result

    def chain(self, base: torch.Tensor, view: torch.Tensor, keys: list[object], detached: bool) -> Chain | None:
        """Returns what leads from one tensor to another, if that are operators of one tensor each, one after the other.

        Args:
            base: Where it begins.
            view: Where it ends.
            keys: The lasting keys of symbolic numbers that a call knows.
            detached: Whether the view loses its history at its end, where `detach` may have run already.
        """
        steps: list[Step] = []
        ahead = view
        try:
            for func, args, kwargs, result in reversed(self._ran):
                made = result if isinstance(result, tuple | list) else [result]
                which = [i for i, x in enumerate(made) if x is ahead]
                if not which:  # a look at something else
                    continue
                tensors = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor)]
                if len(tensors) != 1 or any(isinstance(x, torch.Tensor) for x in kwargs.values()):
                    return None
                ahead = args[tensors[0]]
                rest = tuple(_plain(x, keys) for i, x in enumerate(args) if i != tensors[0])
                named = tuple((name, _plain(x, keys)) for name, x in kwargs.items())
                steps.append(Step(func, rest, named, tensors[0], None if made[0] is result else which[0]))
        except LookupError:  # a number that the call does not know
            return None
        finally:
            self._ran.clear()  # which nothing may hold
        return Chain(_with_bits(reversed(steps)), detached) if ahead is base and steps else None


def _with_bits(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Returns the steps that make a view of a real tensor, of those that made one in a trace.

    There a conjugate has no bit, so its real and imaginary part are what they are of any tensor. Of one with the bit,
    eager mode takes the parts without it, and sets another bit of the imaginary part.
    """
    found: list[Step] = []
    is_conjugate = of_parts = False
    for step in steps:
        if step.operator is _aten._conj.default:
            is_conjugate = not is_conjugate
        if step.operator is _aten.view_as_real.default and is_conjugate:
            found.append(Step(_aten._conj.default))
            is_conjugate, of_parts = False, True
        found.append(step)
        if of_parts and step.operator is _aten.select.int:
            of_parts = False
            if step.args[1] == 1:
                found.append(Step(_aten._neg_view.default))
    return tuple(found)


_aten = torch.ops.aten


def _plain(argument: object, keys: list[object]) -> Any:
    """Returns an argument with the positions of symbolic numbers in their place.

    Raises:
        LookupError: One of them is not known.
    """
    if isinstance(argument, list | tuple) and type(argument) in (list, tuple):
        return type(argument)(_plain(x, keys) for x in argument)
    if not is_symbolic(argument):
        return argument
    key = lasting_key_of(argument)
    if key not in keys:
        raise LookupError(key)
    return SymintAt(keys.index(key))
