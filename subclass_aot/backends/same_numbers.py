"""Arithmetic that is the same for many numbers: an optimizer reads a counter for each parameter, and all are equal.

Eager mode computes `1 - beta ** step` for each. Here it is computed once for each value that the counters have, as are
the checks of what was assumed of them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from subclass_aot.backends.plan import Call, Plan, nodes_in, owner_of
from subclass_aot.backends.shorter import plain_spec
from subclass_aot.engine.passes import is_symint

_aten = torch.ops.aten
_READ = _aten._local_scalar_dense.default
_OF_PYTHON = frozenset({"_operator", "math"})
_FEWEST = 4
"""For how many numbers one call pays."""


class _Part(NamedTuple):
    """One call of a function of numbers.

    Attributes:
        func: The function.
        args: Its arguments: a constant, or None for what `given` has.
        given: At each position the part of the chain that gives the argument, 0 for the number itself; None for a
            constant.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    given: tuple[int | None, ...]


class _Chain:
    """All that is computed of one number alone.

    Attributes:
        parts: The calls, in order.
        places: The number and what the parts give, by their positions.
        key: Equal for chains that compute the same.
    """

    def __init__(self, number: fx.Node) -> None:
        spec = plain_spec(number.args[0])
        self.parts: list[_Part] = []
        self.places: dict[fx.Node, int] = {number: 0}
        self.key: tuple[object, ...] = (None if spec is None else spec.dtype,)

    def add(self, node: fx.Node, call: Call, same: dict[fx.Node, fx.Node]) -> None:
        """Adds a call."""
        given = tuple([self.places[owner_of(x, same)] if isinstance(x, fx.Node) else None for x in call.args])
        args = tuple([None if isinstance(x, fx.Node) else x for x in call.args])
        self.parts.append(_Part(call.func, args, given))
        self.key += (_name_of(call.func, given), tuple(map(repr, args)), given)
        self.places[node] = len(self.parts)


class _ForEach:
    """Computes chains of which all have one key.

    Args:
        chains: For each number its parts: what fails, fails by its own.
        wanted: Which parts are given back.
    """

    __name__ = "for_each_number"
    __module__ = __name__

    def __init__(self, chains: Sequence[Sequence[_Part]], wanted: Sequence[int]) -> None:
        self.chains = chains
        self.wanted = wanted

    def __call__(self, numbers: Sequence[Any]) -> list[Any]:
        """Returns what is wanted of the first number, then of the second one, and so on."""
        first = numbers[0]
        if first and numbers.count(first) == len(numbers):
            return self.computed(self.chains[0], first) * len(numbers)
        known: dict[Any, list[Any]] = {}
        found: list[Any] = []
        for parts, number in zip(self.chains, numbers, strict=True):
            results = known.get(number)
            if results is None or not number:  # of zeros there are two
                results = known[number] = self.computed(parts, number)
            found += results
        return found

    def computed(self, parts: Sequence[_Part], number: Any) -> list[Any]:
        """Returns what is wanted of one number."""
        values = [number]
        for func, args, given in parts:
            values.append(func(*[x if i is None else values[i] for x, i in zip(args, given, strict=True)]))
        return [values[i] for i in self.wanted]


def compute_once(plan: Plan, count: int) -> None:
    """Changes the first steps of a plan so that what is computed alike of many numbers is one call.

    Args:
        plan: The plan.
        count: How many steps come first. They only compute, read numbers and compare these.
    """
    steps, same = plan.steps[:count], plan.same
    chains: dict[fx.Node, _Chain] = {}
    chain_of: dict[fx.Node, _Chain] = {}
    before: list[tuple[fx.Node | None, Call]] = []
    parts: list[tuple[fx.Node | None, Call]] = []
    rest: list[tuple[fx.Node | None, Call]] = []
    later: set[fx.Node] = set()  # what is made of numbers
    for node, call in steps:
        assert node is not None
        read = {owner_of(x, same) for x in nodes_in((call,))}
        of = {id(chain_of[x]): chain_of[x] for x in read if x in chain_of}
        if not of and later.isdisjoint(read):
            before.append((node, call))
            if call.func is _READ:
                chains[node] = chain_of[node] = _Chain(node)
            continue
        chain = next(iter(of.values()), None)
        if chain is not None and len(of) == 1 and read <= chain.places.keys() and _is_part(node, call):
            chain.add(node, call, same)
            chain_of[node] = chain
            parts.append((node, call))
        else:
            rest.append((node, call))
            later.add(node)
    groups: dict[tuple[object, ...], dict[fx.Node, _Chain]] = {}
    for number, chain in chains.items():
        if chain.parts:
            groups.setdefault(chain.key, {})[number] = chain
    calls: list[tuple[fx.Node | None, Call]] = []
    done: set[fx.Node] = set()
    for group in groups.values():
        if len(group) >= _FEWEST:
            inside = {node for chain in group.values() for node in chain.places}
            calls += _call_of(group, _wanted(plan, inside))
            done |= inside
    if calls:
        kept = [(node, call) for node, call in parts if node not in done]
        plan.steps[:count] = [*before, *calls, *kept, *rest]


def _is_part(node: fx.Node, call: Call) -> bool:
    """Returns whether a call depends on nothing but numbers and constants."""
    if call.kwargs or not all(isinstance(x, fx.Node) or type(x) in (int, float, bool) for x in call.args):
        return False
    return is_symint(node) and call.func.__module__ in _OF_PYTHON or _is_check_of_numbers(node)


def _is_check_of_numbers(node: fx.Node) -> bool:
    """Returns whether a node is a check of which the text says all."""
    return bool(node.meta.get("is_check")) and getattr(node.target, "__name__", "") == "check_numbers"


def _name_of(func: Callable[..., Any], given: Sequence[int | None]) -> object:
    """Returns what says what a function does; in the text of a check, places stand for its parameters."""
    text = getattr(func, "__source__", None)
    return func if text is None else re.sub(r"\bn(\d+)\b", lambda match: f"place {given[int(match[1])]}", text)


def _wanted(plan: Plan, inside: set[fx.Node]) -> set[fx.Node]:
    """Returns those of some nodes that others read, or the graph returns."""
    readers = {x for node, call in plan.steps if node not in inside for x in nodes_in((call,))}
    found = {owner_of(x, plan.same) for x in readers}
    aliases = {node: owner for node in plan.same if (owner := owner_of(node, plan.same)) in inside}
    returned = {aliases.get(x, x) for x in [*inside, *aliases] if any(user.op == "output" for user in x.users)}
    return inside & (found | returned)


def _call_of(group: dict[fx.Node, _Chain], wanted: set[fx.Node]) -> list[tuple[fx.Node | None, Call]]:
    """Returns the step that computes chains of one key, and those that take the results apart."""
    first = next(iter(group))
    places = sorted({i for chain in group.values() for node, i in chain.places.items() if i and node in wanted})
    func = _ForEach([chain.parts for chain in group.values()], places)
    made = fx.Node(first.graph, "numbers", "call_function", func, (), {})
    steps: list[tuple[fx.Node | None, Call]] = [(made, Call(func, ([*group],)))]
    for i, chain in enumerate(group.values()):
        at = {place: node for node, place in chain.places.items()}
        for j, place in enumerate(places):
            if at[place] in wanted:
                steps.append((at[place], Call(operator.getitem, (made, i * len(places) + j))))
    return steps
