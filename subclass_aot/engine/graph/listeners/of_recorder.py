"""The listeners of one recorder: those of every program, and those that begin with what a program does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subclass_aot.base import _torch
from subclass_aot.base.later import Registry
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.graph.listeners.annotations import Annotations
from subclass_aot.engine.graph.listeners.argument_overlap import ArgumentOverlap
from subclass_aot.engine.graph.listeners.arrays import Arrays
from subclass_aot.engine.graph.listeners.internal_overlap import InternalOverlap
from subclass_aot.engine.graph.listeners.lazy_views import LazyViews
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.listeners.mutated_views import MutatedViews
from subclass_aot.engine.graph.listeners.mutation_log import MutationLog
from subclass_aot.engine.graph.listeners.places import Places
from subclass_aot.engine.graph.listeners.real_tensors import RealTensors
from subclass_aot.engine.graph.listeners.rng import RandomNumbers
from subclass_aot.engine.graph.listeners.stack_traces import StackTraces
from subclass_aot.engine.graph.looks import Looks


class Listeners:
    """The listeners of a recorder, in the order in which they are called.

    Those of every program begin with the recorder. Another one begins with the first operator that it is about (see
    `GraphListener.effects`), or where it is first read as an attribute; `name in listeners` says whether it has
    begun.

    Args:
        looks: The values of the call that is traced, if they may be read.
        in_common: By name, the listeners that a recorder and its forks have in common, as they began.

    Attributes:
        plans: What to do at a call of an operator, by its id; it is emptied when another listener begins.
        of_wrappers: The listeners of an operator on wrappers, in the same way.
    """

    # More than ten attributes: each is a part of the recorder with a subject of its own.

    lost_gradients: Any
    argument_overlap: ArgumentOverlap
    mutations: MutationLog
    assigned_data: Any
    mutated_views: MutatedViews
    internal_overlap: InternalOverlap
    places: Places
    lazy_views: LazyViews
    random_numbers: RandomNumbers
    own_generators: Any
    data_dependent: Any
    real_tensors: RealTensors
    stack_traces: StackTraces
    annotations: Annotations
    arrays: Arrays

    def __init__(self, looks: Looks | None = None, in_common: dict[str, GraphListener] | None = None) -> None:
        self.looks = looks
        self._in_common: dict[str, GraphListener] = {} if in_common is None else in_common
        self.plans: dict[int, Any] = {}
        self.of_wrappers: dict[int, list[Callable[..., Any]]] = {}
        for name, kind in _OF_EVERY_PROGRAM.items():
            setattr(self, name, kind())

    def __getattr__(self, name: str) -> GraphListener:
        """Begins a listener, which is an attribute from then on."""
        if name not in ORDER:
            raise AttributeError(name)
        kind = LISTENERS[name]
        listener = self._in_common.setdefault(name, kind()).fork() if kind.is_shared else kind()
        setattr(self, name, listener)
        self.plans.clear()
        self.of_wrappers.clear()
        return listener

    def __contains__(self, name: str) -> bool:
        """Returns whether a listener has begun; one that forks have in common may have begun in the other."""
        return name in vars(self) or name in self._in_common

    def fork(self) -> Listeners:
        """Returns those of a fork of the recorder."""
        fork = Listeners(self.looks, self._in_common)
        for name in ORDER:
            if name in self:
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
        for name in self._in_common:
            getattr(self, name)
        there = vars(self)
        return [there[name] for name in ORDER if name in there]


ORDER = (
    "lost_gradients",  # refuses an operator before anybody else notes it
    "argument_overlap",  # refuses a write before it counts as one
    "mutations",
    "assigned_data",
    "mutated_views",
    "internal_overlap",  # has a leaf that is written mean another node: those behind it see that
    "places",
    "lazy_views",
    "random_numbers",  # records a draw itself
    "own_generators",
    "data_dependent",
    "real_tensors",
    "stack_traces",
    "annotations",
    "arrays",
)
"""All listeners, by their subjects, in the order in which they are called."""

LISTENERS: Registry[type[GraphListener]] = Registry("listener")
"""Their classes. Those of subjects are put in when one begins, which nothing but a read of their attribute does."""

_OWN: dict[str, type[GraphListener]] = {
    "argument_overlap": ArgumentOverlap,
    "mutations": MutationLog,
    "mutated_views": MutatedViews,
    "internal_overlap": InternalOverlap,
    "places": Places,
    "lazy_views": LazyViews,
    "random_numbers": RandomNumbers,
    "real_tensors": RealTensors,
    "stack_traces": StackTraces,
    "annotations": Annotations,
    "arrays": Arrays,
}
LISTENERS.update(_OWN)

_BY_EFFECT: dict[str, list[str]] = {"data_dependent": ["data_dependent"]}
"""Which listeners begin with operators that have an effect. Those of subjects are named: they are not imported yet."""
_BY_OPERATOR: dict[_torch.operators.Operator, list[str]] = {}
"""Which begin with an operator."""
for _name, _kind in _OWN.items():
    for _effect in _kind.effects:
        _BY_EFFECT.setdefault(_effect, []).append(_name)
    for _operator in _kind.operators:
        _BY_OPERATOR.setdefault(_operator, []).append(_name)
_OF_EVERY_PROGRAM = {name: kind for name, kind in _OWN.items() if kind.is_of_every_program}


def _own(listeners: list[GraphListener], name: str) -> list[Callable[..., Any]]:
    """Returns the methods of this name of listeners that override it."""
    return [getattr(x, name) for x in listeners if getattr(type(x), name) is not getattr(GraphListener, name)]
