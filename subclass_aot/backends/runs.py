"""Runs of operators: steps of a plan in a row that native code calls, without Python in between.

Python makes an object of each tensor, reads the arguments of each call, and writes down what each returned: more than a
small kernel takes. Between the operators of a run there is none of that. What goes in is what the run reads and others
made, what comes out is what others read.

A run ends where Python is needed: at arithmetic of sizes, at operators that are written in Python or have a faster
function of Python, and at arguments that have no form in the dispatcher.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot.backends.bindings import kernel_of
from subclass_aot.backends.plan import Call, Plan, nodes_in, owner_of
from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.passes import is_symint
from subclass_aot.meta import Spec
from subclass_aot.subjects.recurrent import FOR_TRAINING, LAYER

Argument = tuple[str, Any]
"""What an operator is given, as the native class takes it."""

_SHORTEST = 2
"""What fewer operators save is less than the list that they are given costs."""

_CONSTANTS = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)

_WITH_GRAD: dict[Any, _torch.operators.Operator] = {FOR_TRAINING: LAYER}
"""Operators of this library that are one of torch's in grad mode."""

_FRESH = frozenset({torch.ops.aten.linear.default})
"""Composite operators that give new tensors. Others may give back what they are given."""


@dataclass(slots=True, eq=False)
class Run:
    """Some steps of a plan.

    Attributes:
        inputs: What it reads, and others made.
        outputs: What it makes, and others read.
        results: The places of these.
        steps: Its operators, as the native class takes them.
        places: How many values there are in it.
        covers: The steps of the plan.
    """

    inputs: list[fx.Node]
    outputs: list[fx.Node]
    results: tuple[int, ...]
    steps: tuple[tuple[str, str, tuple[Argument, ...], tuple[int, ...], str], ...]
    places: int
    covers: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One call of an operator.

    Attributes:
        func: The operator.
        arguments: For each of its parameters.
        results: The place of each result; -1 for what nobody has a name for.
    """

    func: Any
    arguments: tuple[Argument, ...]
    results: tuple[int, ...]

    @property
    def is_fresh(self) -> bool:
        """Returns whether the results are new memory."""
        effects = effects_of(self.func)
        return effects.pure and not effects.composite or self.func in _FRESH

    @property
    def written(self) -> set[int]:
        """Returns the places that it writes."""
        given = [self.arguments[position] for position, _ in effects_of(self.func).writes]
        given = [part for kind, value in given for part in (value if kind == "list" else [(kind, value)])]
        return {place for kind, place in given if kind != "constant"}  # an empty list, or None


def runs_of(plan: Plan, output: Sequence[object]) -> dict[int, Run]:
    """Returns the runs of a plan, by the step that each begins with.

    Args:
        plan: How a graph is run.
        output: What the graph returns.
    """
    readers: dict[fx.Node, list[int]] = {}
    for i, (_, call) in enumerate(plan.steps):
        for read in nodes_in((call,)):
            readers.setdefault(owner_of(read, plan.same), []).append(i)
    for read in nodes_in(output):
        readers.setdefault(owner_of(read, plan.same), []).append(len(plan.steps))
    items = {i for i, (_, call) in enumerate(plan.steps) if _is_item(call)}
    groups: list[list[int]] = [[]]
    made: set[object] = set()  # in the last group, and in those before it that are runs
    for i, (node, call) in enumerate(plan.steps):
        if i in items and owner_of(call.args[0], plan.same) in made:
            continue  # of several results, a run gives each by itself
        if i not in items and _fits(call, plan) and _result_fits(node, call, readers, items):
            groups[-1].append(i)
            made.add(node)
        else:
            if len(groups[-1]) < _SHORTEST:
                made.difference_update(plan.steps[j][0] for j in groups[-1])
            groups.append([])
    return {group[0]: _Writer(plan, group, readers, items).run() for group in groups if len(group) >= _SHORTEST}


def _is_item(call: Call) -> bool:
    if call.func is not operator.getitem or not isinstance(call.args[0], fx.Node):
        return False
    return type(call.args[1]) is int and call.args[1] >= 0


def _fits(call: Call, plan: Plan) -> bool:
    """Returns whether native code can call an operator with these arguments."""
    if not _torch.operators.is_overload(call.func) or not (kernel_of(call.func) or call.func in _WITH_GRAD):
        return False
    schema = _torch.operators.schema_of(call.func)
    given = [*zip(schema.arguments, call.args, strict=False)]
    given += [(argument, call.kwargs[argument.name]) for argument in schema.arguments if argument.name in call.kwargs]
    return all(_argument_fits(value, str(argument.type), plan) for argument, value in given)


def _argument_fits(value: object, kind: str, plan: Plan) -> bool:
    kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
    if isinstance(value, Call):
        return kind == "Tensor" and _fits(value, plan)
    if isinstance(value, fx.Node):
        node = owner_of(value, plan.same)
        return type(node.meta.get("spec")) is Spec if kind == "Tensor" else kind == "int" and is_symint(node)
    if isinstance(value, list | tuple):
        if not any(nodes_in(value)):
            return all(isinstance(x, _CONSTANTS) for x in value)
        kind = kind.removeprefix("List[").removesuffix("]")
        return all(x is None or type(x) is int or _argument_fits(x, kind, plan) for x in value)
    return isinstance(value, _CONSTANTS)


def _result_fits(node: fx.Node | None, call: Call, readers: dict[fx.Node, list[int]], items: set[int]) -> bool:
    """Returns whether an operator returns tensors one by one, or nobody reads what it returns as a whole."""
    kinds = [str(returned.type) for returned in _torch.operators.schema_of(call.func).returns]  # type: ignore[arg-type]
    if kinds == ["Tensor"]:
        return True
    if not set(kinds) <= {"Tensor", "List[Tensor]"} or "List[Tensor]" in kinds and len(kinds) > 1:
        return False
    return node is None or all(i in items for i in readers.get(node, ()))


class _Writer:
    """Writes one run."""

    def __init__(self, plan: Plan, group: list[int], readers: dict[fx.Node, list[int]], items: set[int]) -> None:
        self.plan = plan
        self.group = group
        self.items: dict[fx.Node, list[tuple[fx.Node, int]]] = {}
        self.covers = list(group)
        made = {made for made, _ in (plan.steps[i] for i in group) if made is not None}
        for node in made:
            for i in items.intersection(readers.get(node, ())):
                item, getitem = plan.steps[i]
                assert item is not None
                self.items.setdefault(node, []).append((item, getitem.args[1]))
                self.covers.append(i)
        self.made = made - self.items.keys() | {item for found in self.items.values() for item, _ in found}
        covered = set(self.covers)
        in_order = [plan.steps[i][0] for i in sorted(covered)]
        self.outputs = [n for n in in_order if n in self.made and not covered.issuperset(readers.get(n, ()))]
        self.places: dict[fx.Node, int] = {}
        self.count = 0
        self.steps: list[_Step] = []

    def run(self) -> Run:
        read = [owner_of(n, self.plan.same) for i in self.group for n in nodes_in((self.plan.steps[i][1],))]
        inputs = list(dict.fromkeys(node for node in read if node not in self.made))
        for given in inputs:
            self.places[given] = self.place()
        for i in self.group:
            node, call = self.plan.steps[i]
            self.step(call, self.results_of(node))
        results = tuple(self.places[node] for node in self.outputs)
        return Run(inputs, self.outputs, results, tuple(self.finished(results)), self.count, self.covers)

    def place(self) -> int:
        self.count += 1
        return self.count - 1

    def results_of(self, node: fx.Node | None) -> tuple[int, ...]:
        """Returns the places of what a step returns; -1 for what nobody has a name for."""
        if node is None:
            return ()
        if node not in self.items:
            self.places[node] = self.place()
            return (self.places[node],)
        results = [-1] * (1 + max(index for _, index in self.items[node]))
        for item, index in self.items[node]:
            if results[index] < 0:
                results[index] = self.place()
            self.places[item] = results[index]
        return tuple(results)

    def step(self, call: Call, results: tuple[int, ...]) -> None:
        func: Any = call.func
        arguments = [self.argument(value) for value in call.args]
        for argument in _torch.operators.schema_of(func).arguments[len(arguments) :]:
            given = argument.name in call.kwargs
            arguments.append(
                self.argument(call.kwargs[argument.name]) if given else ("constant", argument.default_value)
            )
        self.steps.append(_Step(func, tuple(arguments), results))

    def argument(self, value: object) -> Argument:
        if isinstance(value, fx.Node):
            return "place", self.places[owner_of(value, self.plan.same)]
        if isinstance(value, Call):
            place = self.place()
            self.step(value, (place,))
            return "place", place
        if isinstance(value, list | tuple) and any(nodes_in(value)):
            return "list", tuple(map(self.argument, value))
        return "constant", value

    def finished(self, results: tuple[int, ...]) -> list[Any]:
        """Returns the steps as the native class takes them: each place is read for the last time somewhere, if no
        result is there.
        """
        seen = set(results)

        found: list[Any] = []
        for step, how in zip(reversed(self.steps), reversed(self.seen_by_autograd(results)), strict=True):
            schema = _torch.operators.schema_of(_WITH_GRAD.get(step.func) or kernel_of(step.func))
            unread = tuple(place if place in seen else -1 for place in step.results)
            arguments = _with_last(step.arguments, seen)
            found.append((schema.name, schema.overload_name, arguments, unread, how))
        return found[::-1]

    def seen_by_autograd(self, results: tuple[int, ...]) -> list[str]:
        """Returns for each step whether autograd has to see it, though it computes no gradients.

        It counts the writes into a tensor, and notes what a tensor is a view of. Nobody reads that of tensors that are
        made in a run and do not leave it; and of new tensors that leave it there is nothing to be read yet.
        """
        made: set[int] = set()  # on memory of the run
        viewed: dict[int, int] = {}
        for step in self.steps:
            effects = effects_of(step.func)
            if step.is_fresh:
                made.update(step.results)
            elif not effects.writes and all(effects.returns_view_of):
                kind, base = step.arguments[effects.returns_view_of[0][0]]  # type: ignore[index]
                viewed.update((place, base) for place in step.results if kind == "place")
                made.update(place for place in step.results if kind == "place" and base in made)
        noted = {*results, *(place for step in self.steps for place in step.written if place not in made)}
        for place in reversed(viewed):
            if place in noted:
                noted.add(viewed[place])
        found = []
        for step in self.steps:
            written = step.written
            hidden = written <= made if written else viewed.keys() >= set(step.results) - {-1}
            if step.func in _WITH_GRAD:
                found.append("with grad")
            elif step.func in _FRESH:  # below autograd, tensor subclasses would see it whole
                found.append("")
            else:
                found.append("below" if step.is_fresh or hidden and noted.isdisjoint(step.results) else "")
        return found


def _with_last(arguments: tuple[Argument, ...], seen: set[int]) -> tuple[Argument, ...]:
    """Returns arguments, with each place marked that nobody has seen yet, from the last one to the first."""
    found: list[Argument] = []
    for kind, value in reversed(arguments):
        if kind == "list":
            found.append((kind, _with_last(value, seen)))
        elif kind == "place" and value not in seen:
            seen.add(value)
            found.append(("last", value))
        else:
            found.append((kind, value))
    return tuple(reversed(found))
