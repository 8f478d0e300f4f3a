"""The listeners of one recorder: those of every program, and those that begin with what a program does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from subclass_aot import _torch
from subclass_aot.graph.listeners.annotations import Annotations
from subclass_aot.graph.listeners.argument_overlap import ArgumentOverlap
from subclass_aot.graph.listeners.arrays import Arrays
from subclass_aot.graph.listeners.assigned_data import AssignedData
from subclass_aot.graph.listeners.data_dependent import DataDependent
from subclass_aot.graph.listeners.internal_overlap import InternalOverlap
from subclass_aot.graph.listeners.lazy_views import LazyViews
from subclass_aot.graph.listeners.listener import GraphListener
from subclass_aot.graph.listeners.lost_gradients import LostGradients
from subclass_aot.graph.listeners.mutated_views import MutatedViews
from subclass_aot.graph.listeners.mutation_log import MutationLog
from subclass_aot.graph.listeners.places import Places
from subclass_aot.graph.listeners.real_tensors import RealTensors
from subclass_aot.graph.listeners.rng import RandomNumbers
from subclass_aot.graph.listeners.stack_traces import StackTraces
from subclass_aot.graph.looks import Looks
from subclass_aot.operators import effects_of


class Listeners:
    """The listeners of a recorder, in the order in which they are called.

    Those of every program begin with the recorder. Another one begins with the first operator that it is about (see
    `GraphListener.effects`), or where it is first read as an attribute; `name in listeners` says whether it has
    begun.

    Args:
        looks: The values of the call that is traced, if they may be read.

    Attributes:
        plans: What to do at a call of an operator, by its id; it is emptied when another listener begins.
        of_wrappers: The listeners of an operator on wrappers, in the same way.
    """

    # More than ten attributes: each is a part of the recorder with a subject of its own.

    lost_gradients: LostGradients
    argument_overlap: ArgumentOverlap
    mutations: MutationLog
    assigned_data: AssignedData
    mutated_views: MutatedViews
    internal_overlap: InternalOverlap
    places: Places
    lazy_views: LazyViews
    random_numbers: RandomNumbers
    data_dependent: DataDependent
    real_tensors: RealTensors
    stack_traces: StackTraces
    annotations: Annotations
    arrays: Arrays

    def __init__(self, looks: Looks | None = None) -> None:
        self.looks = looks
        self.plans: dict[int, Any] = {}
        self.of_wrappers: dict[int, list[Callable[..., Any]]] = {}
        for name, kind in _OF_EVERY_PROGRAM.items():
            setattr(self, name, kind())

    def __getattr__(self, name: str) -> GraphListener:
        """Begins a listener, which is an attribute from then on."""
        if name not in _KINDS:
            raise AttributeError(name)
        listener = _KINDS[name]()
        setattr(self, name, listener)
        self.plans.clear()
        self.of_wrappers.clear()
        return listener

    def __contains__(self, name: str) -> bool:
        """Returns whether a listener has begun."""
        return name in vars(self)

    def fork(self) -> Listeners:
        """Returns those of a fork of the recorder."""
        fork = Listeners(self.looks)
        for name, kind in _KINDS.items():
            if name in self or kind.is_shared:
                setattr(fork, name, getattr(self, name).fork())
        return fork

    def methods(self, name: str) -> list[Callable[..., Any]]:
        """Returns the methods of this name of the listeners that have begun."""
        return _own(self._begun(), name)

    def methods_for(self, func: _torch.operators.Operator, *names: str) -> list[list[Callable[..., Any]]]:
        """Returns the methods of some names that are called for an operator. Listeners begin that it is about."""
        effects = effects_of(func)
        beginning = [each for effect, kinds in _BY_EFFECT.items() if getattr(effects, effect) for each in kinds]
        for attribute in (*beginning, *_BY_OPERATOR.get(func, ())):
            getattr(self, attribute)
        wanted = [listener for listener in self._begun() if listener.wants(func)]
        return [_own(wanted, name) for name in names]

    def _begun(self) -> list[GraphListener]:
        there = vars(self)
        return [there[name] for name in _KINDS if name in there]


_KINDS: dict[str, type[GraphListener]] = get_type_hints(Listeners)
_BY_EFFECT: dict[str, list[str]] = {}
"""Which listeners begin with operators that have an effect."""
_BY_OPERATOR: dict[_torch.operators.Operator, list[str]] = {}
"""Which begin with an operator."""
for _name, _kind in _KINDS.items():
    for _effect in _kind.effects:
        _BY_EFFECT.setdefault(_effect, []).append(_name)
    for _operator in _kind.operators:
        _BY_OPERATOR.setdefault(_operator, []).append(_name)
_OF_EVERY_PROGRAM = {name: kind for name, kind in _KINDS.items() if kind.is_of_every_program}


def _own(listeners: list[GraphListener], name: str) -> list[Callable[..., Any]]:
    """Returns the methods of this name of listeners that override it."""
    return [getattr(x, name) for x in listeners if getattr(type(x), name) is not getattr(GraphListener, name)]
