"""View chains: how a view was made, as data: the operators that run when autograd regenerates it.

Autograd keeps the operators that made a view as functions, which are like any others and cannot be written down: one
that was pickled makes nothing. So they run once more, on a tensor without data, and what runs is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.structures import with_known_structure
from subclass_aot.kit.views import Chain, JaggedStep, RaggedSize, Step, SymintAt
from subclass_aot.meta import MetaTensor, new_leaf
from subclass_aot.meta.symbols import is_symbolic, lasting_key_of, unbacked_sizes

Known = Callable[[torch.Tensor], torch.Tensor | None]
"""What gives the values of a traced tensor, if they are known."""


class Remade:
    """A view that is regenerated, of tensors that belong to no trace.

    Attributes:
        base: What it is made of.
        symints: The symbolic numbers that it is made with, by their lasting keys.
        beside: The tensors that it is made with beside its base, by id: the traced one, and what stands for it.
    """

    def __init__(self, base: torch.Tensor, known: Known = lambda tensor: None) -> None:
        self.base = base
        self.symints: dict[Any, Any] = {}
        self.beside: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._known, self._steps = known, RecordedViews()

    @classmethod
    def of_known(cls, base: torch.Tensor, traced: torch.Tensor, known: Known) -> Remade:
        """Returns one that is made with the values of what says where rows of jagged tensors begin and end.

        Args:
            base: What it is made of.
            traced: The traced tensor that `base` is like.
            known: Returns the values of a traced tensor, if a program may read them.
        """
        return cls(with_known_structure(base, traced, known), known)

    def view(self, again: Callable[..., torch.Tensor]) -> torch.Tensor:
        """Makes it, and notes how.

        Args:
            again: Makes the view of a base, with a function that gives numbers, and one that gives other tensors.
        """
        no_new = unbacked_sizes(None)  # which no node of the graph would give
        with _torch.dispatch.disable_current_modes(), torch.no_grad(), no_new, self._steps:
            return again(self.base, self._number, self._tensor)

    def chain(self, view: torch.Tensor, detached: bool) -> Chain | None:
        """Returns how it was made, as data: see `RecordedViews.chain`."""
        return self._steps.chain(self.base, view, list(self.symints), detached, [x for _, x in self.beside.values()])

    @property
    def tensors_beside(self) -> list[torch.Tensor]:
        """The traced tensors that it is made with beside its base."""
        return [traced for traced, _ in self.beside.values()]

    def _number(self, number: Any) -> Any:
        if is_symbolic(number):
            self.symints[lasting_key_of(number)] = number
        if not _torch.wrappers.is_nested_int(number):
            return number
        if (ragged := _torch.wrappers.ragged_size_of(self.base)) is not None:
            return ragged
        offsets = _torch.wrappers.structure_behind(number)  # these may be lengths, too
        return number if offsets is None else _torch.wrappers.nested_int_of(self._tensor(offsets))

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, MetaTensor):  # the example of the class of jagged tensors
            return tensor
        if id(tensor) not in self.beside:
            values = self._known(tensor)
            self.beside[id(tensor)] = tensor, new_leaf(tensor.meta_spec) if values is None else values
        return self.beside[id(tensor)][1]


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

    def chain(
        self,
        base: torch.Tensor,
        view: torch.Tensor,
        keys: list[object],
        detached: bool,
        beside: Sequence[torch.Tensor] = (),
    ) -> Chain | None:
        """Returns what leads from one tensor to another, if that are operators of one tensor each, one after the other.

        Args:
            base: Where it begins.
            view: Where it ends.
            keys: The lasting keys of symbolic numbers that a call knows.
            detached: Whether the view loses its history at its end, where `detach` may have run already.
            beside: Other tensors that a call has.
        """
        steps: list[Step] = []
        ahead = view
        places = {id(x): SymintAt(len(keys) + i) for i, x in enumerate(beside)}
        try:
            for func, args, kwargs, result in reversed(self._ran):
                made = result if isinstance(result, tuple | list) else [result]
                which = [i for i, x in enumerate(made) if x is ahead]
                if not which:  # this read is of something else
                    continue
                if func is _aten._nested_view_from_jagged.default:  # of which one is an example of the class
                    func, args = _torch.wrappers.view_as_jagged, (*args[:2], *args[3:])
                args = tuple(places.get(id(x), x) for x in args)
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
            self._ran.clear()  # nothing may hold these tensors
        if ahead is not base or not steps:
            return None
        return Chain(tuple(map(JaggedStep.if_ragged, _with_bits(reversed(steps)))), detached)


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
    if _torch.wrappers.is_nested_int(argument):
        return RaggedSize()
    if not is_symbolic(argument):
        return argument
    key = lasting_key_of(argument)
    if key not in keys:
        raise LookupError(key)
    return SymintAt(keys.index(key))
