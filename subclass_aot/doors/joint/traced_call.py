"""The call from which a joint graph was traced, without its tensors; and how another call differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.doors.joint import messages
from subclass_aot.doors.joint.records import tensor_of
from subclass_aot.engine.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace
from subclass_aot.engine.facts import Facts, Kind, Modes, Scope, difference, facts_of, global_state, source_of
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.tables import Gradients
from subclass_aot.errors import JointGraphError
from subclass_aot.files.compiled import FactsToTell, told, told_later

_OF_VALUES = (
    Kind.MODE,
    Kind.TENSOR,
    Kind.SAME,
    Kind.SIZE,
    Kind.ASSUMED,
    Kind.STORAGE,
    Kind.LEAF,
    Kind.BYTES,
    Kind.HISTORY,
    Kind.BEGINNING,
    Kind.DATA,
)
"""The facts of a call that are left when its tensors are given one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class TracedCall:
    """The call from which a joint graph was traced.

    Attributes:
        name: What errors call the function.
        kind: Its class; of a function, a digest of its code.
        order: The names of the tensors, in the order of the graph.
        names: For every place where a tensor stands, the name of that tensor. One that is tied has several.
        facts: Everything that the trace depends on, which becomes text when it is read.
        of_values: What of that is left when the tensors are given one by one; None where that follows from `facts`,
            since nothing of the call is a view that comes as its base.
        modes: The modes of torch.
        with_grad: Of which tensors the `.grad` belonged to the call.
    """

    name: str
    kind: object
    order: tuple[str, ...]
    names: Mapping[str, str]
    facts: FactsToTell
    of_values: FactsToTell | None
    modes: Modes
    with_grad: Gradients

    @staticmethod
    def of(fn: Callable[..., Any], arguments: Arguments, signature: JointSignature) -> TracedCall:
        """Reads it off the call, before anybody changes something."""
        order = tuple(tensor_of(given.desc) for given in signature.inputs)
        modes = global_state()
        names: dict[str, str] = {}
        joined = arguments.with_views(signature.views)
        for place, position in joined.placed:
            if position < len(order):
                names.setdefault(place.path, order[position])
                if isinstance(place, ModulePlace | HeldPlace):
                    names.setdefault(place.path.partition(".")[2], order[position])
        return TracedCall(
            name=getattr(fn, "__name__", type(fn).__name__),
            kind=_kind(fn),
            order=order,
            names={**names, **{name: name for name in order}},
            facts=told_later(facts_of(arguments, modes, Scope.of(signature))),
            of_values=told_later(_facts_of_values(joined.values, signature)) if signature.views else None,
            modes=modes,
            with_grad=arguments.with_grad,
        )

    def refuse_other_function(self, fn: Callable[..., Any]) -> None:
        """Refuses to bind what was not traced.

        Raises:
            JointGraphError: It is of another class, or another function.
        """
        if _kind(fn) != self.kind:
            given = getattr(fn, "__name__", type(fn).__name__)
            if given == self.name:
                given += ", another of that name"
            raise JointGraphError(messages.OTHER_FUNCTION.format(given=given, traced=self.name))

    def refuse_other(self, arguments: Arguments, signature: JointSignature) -> Facts:
        """Refuses a call of the function that is not as the one that was traced.

        Returns:
            Its facts.

        Raises:
            JointGraphError: It differs; each difference is named.
        """
        now = facts_of(arguments, global_state(), Scope.of(signature))
        found = difference(*self.facts.beside(now))
        assigned = sorted(signature.assigned_paths)
        changed = [path for path in assigned if any(line.startswith(f"{path}: ") for line in found)]
        _refuse(found, changed)
        return now

    def refuse_other_values(
        self, values: tuple[torch.Tensor, ...], signature: JointSignature
    ) -> tuple[Arguments, Facts]:
        """Takes values apart that stand for the tensors of the call, one by one, in their order.

        Returns:
            The call of a function of these values, and its facts.

        Raises:
            JointGraphError: They are not as those that were traced; each difference is named.
        """
        if len(values) != len(self.order):
            names = ", ".join(self.order)
            raise JointGraphError(
                messages.NUMBER_OF_VALUES.format(given=len(values), expected=len(self.order), names=names)
            )
        now = _facts_of_values(values, signature)
        both = (_alone(self.facts.told()), told(now)) if self.of_values is None else self.of_values.beside(now)
        _refuse(difference(*both))
        return Arguments.of(_nothing, values, {}), now


def _alone(facts: Facts) -> Facts:
    """Returns what is left of the facts of a call when each of its tensors is given once."""
    return tuple([fact for fact in facts if fact.kind in _OF_VALUES and fact.kind is not Kind.SAME])


def _facts_of_values(values: Sequence[torch.Tensor], signature: JointSignature) -> Facts:
    """Lists the facts of tensors that are given one by one, at the places where the traced call had them."""
    arguments = Arguments.of(_nothing, tuple(values), {})
    paths = [given.path for given in signature.inputs]
    places = tuple(ArgumentPlace(i, path) for i, path in enumerate(paths)) + arguments.places[len(paths) :]
    scope = Scope.of(signature)._replace(views=())
    found = facts_of(dataclasses.replace(arguments, places=places), global_state(), scope)
    return tuple([fact for fact in found if fact.kind in _OF_VALUES])


def _kind(fn: object) -> object:
    """Returns a digest of the code of a function, which another of that name has not; of an object, its class."""
    return source_of(fn) if hasattr(getattr(fn, "__func__", fn), "__code__") else type(fn)


def _refuse(differences: list[str], changed: Sequence[str] = ()) -> None:
    """Refuses a call that differs.

    Args:
        differences: How.
        changed: What of that the function changes itself.
    """
    if differences:
        lines = "\n".join(f"  {line}" for line in differences[:8])
        more = f"\n  and {len(differences) - 8} more" if len(differences) > 8 else ""
        why = messages.CHANGED_ITSELF.format(paths=", ".join(changed)) if changed else ""
        raise JointGraphError(messages.DOES_NOT_FIT.format(differences=lines + more) + why)


def _nothing(*tensors: torch.Tensor) -> None:
    """Does nothing; it is the function where values are flattened."""
