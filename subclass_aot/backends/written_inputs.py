"""Computes what is written into an input where the input stands.

Note [Inputs that are written]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A graph without writes computes what an input is to hold, and copies it there in the end: a step of an optimizer copies
each parameter and each of its states. Eager mode writes them where they stand. So does a graph that runs operator by
operator, where it makes no difference:

- the operator is pointwise, its first operand is the input, and its result has the layout of the input;
- what the input held is not read later, and is no result; nor is what it will hold;
- nothing comes after it that may fail or compare a value, for which nothing may be written before.

An operator on lists (`_foreach_add`, `_fused_adam`) writes all that it is given, with copies of what must stay.

>>> import torch
>>> import subclass_aot as sa
>>> def step(weight, gradient):
...     weight.add_(gradient, alpha=-0.1)
>>> compiled = sa.aot_compile(step)
>>> weight = torch.ones(2)
>>> compiled(weight, torch.ones(2))
>>> weight
tensor([0.9000, 0.9000])
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot.backends.in_place import OVERWRITING
from subclass_aot.backends.lists import Writing, items_of, writes_lists, writing_form
from subclass_aot.backends.memory import Memory
from subclass_aot.backends.plan import Call, Plan, look_alike, nodes_in, owner_of
from subclass_aot.backends.same_numbers import compute_once
from subclass_aot.backends.shorter import plain_spec
from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.engine.passes import is_symint

_aten = torch.ops.aten
_COPY = _aten.copy_.default
_MANY = 4
"""From how many copies on one call for all is faster."""
_DIVIDING = {
    getattr(_aten, name) for name in ("floor_divide", "remainder", "fmod", "floor_divide_", "remainder_", "fmod_")
}
"""Pointwise operators that fail where a whole number is divided by zero. So does a division with a mode of rounding."""


def write_where_they_stand(plan: Plan, nodes: Sequence[fx.Node]) -> None:
    """Changes the steps of a plan so that inputs are written by the operators that compute what they are to hold.

    Args:
        plan: The plan.
        nodes: The nodes of its graph.
    """
    if not any(node is not None and _copies_into_input(node, call) for node, call in plan.steps):
        return
    _numbers_first(plan)
    steps = plan.steps
    copies = {i for i, (node, call) in enumerate(steps) if node is not None and _copies_into_input(node, call)}
    without = {steps[i][0] for i in copies}
    memory = Memory([node for node in nodes if node not in without])  # a copy shares memory with neither of the two
    _Writes(plan, memory, nodes[-1], {i: steps[i][1] for i in copies}).plan_all()
    compute_once(plan, next((i for i, step in enumerate(steps) if not _only_computes(*step)), len(steps)))


def _copies_into_input(node: fx.Node, call: Call) -> bool:
    is_copy = call.func is _COPY and len(call.args) == 2 and not call.kwargs and not node.users
    return is_copy and all(isinstance(x, fx.Node) for x in call.args) and call.args[0].op == "placeholder"


class _Writes:
    # More than ten attributes: each is found in one pass over the steps, and all are read in the next.
    def __init__(self, plan: Plan, memory: Memory, output: fx.Node, copies: dict[int, Call]) -> None:
        self.plan, self.memory, self.copies = plan, memory, copies
        self.made = {node: i for i, (node, _) in enumerate(plan.steps) if node is not None}
        self.taken = {memory.root(node): memory.root(owner_of(node, plan.same)) for node in plan.same}
        self.begin = 1 + max((i for i, (_, call) in enumerate(plan.steps) if not _is_sure(call)), default=-1)
        self.results = {self.root(node) for node in output.all_input_nodes}
        self.written = Counter(self.root(call.args[0]) for call in copies.values())
        self.gone: set[int | None] = set()  # steps
        self.before: dict[int, list[tuple[fx.Node | None, Call]]] = {}  # what is to stand before a step
        self.last_read: dict[fx.Node, int] = {}
        self.last_touched: dict[fx.Node, int] = {}
        for i, (_, call) in enumerate(plan.steps):
            for node in nodes_in(call.args[1:] if i in copies else (call,)):
                self.last_read[self.root(node)] = i
                if i not in copies:
                    self.last_touched[self.root(node)] = i

    def root(self, node: fx.Node) -> fx.Node:
        """Returns one node for all that may be on the same memory when the plan runs."""
        root = self.memory.root(node)
        while self.taken.get(root, root) is not root:
            root = self.taken[root]
        return root

    def plan_all(self) -> None:
        """Changes the steps."""
        steps, gone = self.plan.steps, self.gone
        sources = {owner_of(copy.args[1], self.plan.same): i for i, copy in self.copies.items()}
        for i in reversed(range(len(steps))):
            node, call = steps[i]
            form = None if node is None else writing_form(call.func)
            if form is not None and i >= self.begin:
                assert node is not None
                self._write_lists(node, i, form, sources)
        for i, copy in self.copies.items():
            if i in gone:
                continue
            into, made = copy.args[0], owner_of(copy.args[1], self.plan.same)
            at = self.made.get(made)
            if at is not None and self._may_write(into, made, at, i):
                call = steps[at][1]
                steps[at] = None, Call(OVERWRITING[call.func], call.args, call.kwargs)
                self.plan.same[made] = into
                gone.add(i)
        self._copy_together()
        steps[:] = [x for i, step in enumerate(steps) if i not in gone for x in (*self.before.get(i, ()), step)]

    def _copy_together(self) -> None:
        """Makes one call of the copies at the end, if none of them reads what another one writes."""
        steps, left = self.plan.steps, sorted(self.copies.keys() - self.gone)
        while left and any(i not in self.gone and i not in self.copies for i in range(left[0], len(steps))):
            del left[0]
        copies = [self.copies[i].args for i in left]
        if len(copies) < _MANY or not all(look_alike(*copy) for copy in copies):
            return
        into = Counter(self.root(copy[0]) for copy in copies)
        if max(into.values()) == 1 and into.keys().isdisjoint(self.root(copy[1]) for copy in copies):
            lists = tuple([list(tensors) for tensors in zip(*copies, strict=True)])
            steps[left[-1]] = None, Call(_aten._foreach_copy_.default, lists)
            self.gone.update(left[:-1])

    def _write_lists(self, node: fx.Node, at: int, form: Writing, sources: dict[fx.Node, int]) -> None:
        """Has an operator on lists write the tensors that it is given, and copies of those that must stay.

        Args:
            node: What it returns.
            at: Its step.
            form: Its form that writes.
            sources: By what is copied into an input, the step that does so. What is written there is gone from it.
        """
        call, items = self.plan.steps[at][1], items_of(node, form)
        if items is None:
            return
        times = Counter(self.root(x) for x in nodes_in((*call.args, *call.kwargs.values())) if not is_symint(x))
        results = {item[:2]: item.node for item in items}
        lists: list[list[Any]] = []
        free: list[tuple[fx.Node, Any]] = []
        stay: list[tuple[fx.Node | None, Call]] = []
        for number, place in enumerate(form.written):
            lists.append(list(argument_at(place, call.args, call.kwargs)))
            for i, x in enumerate(lists[-1]):
                made = results.get((number, i))
                if made is None:
                    lists[-1][i] = Call(_aten.clone.default, (x,))
                elif times[self.root(x)] == 1 and self._may_hold(x, made, at, sources.get(made)):
                    free.append((made, x))
                else:
                    lists[-1][i] = made
                    stay.append((made, Call(_aten.clone.default, (x,))))
        if form.is_pointwise and len(stay) + len(items) > 2 * len(free):
            return
        args, kwargs = list(call.args), dict(call.kwargs)
        for (position, name), listed in zip(form.written, lists, strict=True):
            if position < len(args):
                args[position] = listed
            else:
                kwargs[name] = listed
        self.plan.steps[at] = None, Call(form.func, tuple(args), kwargs)
        self.before[at] = stay
        read = (x for item in items for x in (item.node, item.node.args[0]) if isinstance(x, fx.Node) and x is not node)
        self.gone.update(self.made[x] for x in read)
        for made, x in free:
            self._hold(x, made, sources)

    def _may_hold(self, x: fx.Node, made: fx.Node, at: int, copy: int | None) -> bool:
        """Returns whether a tensor may be written by a step that makes another of it, which is copied there later."""
        root, own = self.root(x), self.root(made)
        if not look_alike(x, made) or not self.results.isdisjoint((root, own)) or self.last_read.get(root, -1) > at:
            return False
        if x.op != "placeholder":
            return x in self.memory.whole
        if copy is None or self.copies[copy].args[0] is not x:
            return False
        return self.written[root] == 1 and self.last_touched.get(own, -1) <= copy

    def _hold(self, x: fx.Node, made: fx.Node, sources: dict[fx.Node, int]) -> None:
        """Notes that a tensor is what another was to be."""
        root, own = self.root(x), self.root(made)
        self.plan.same[made] = x
        copy = sources.pop(made, None)
        if x.op == "placeholder":
            self.gone.add(copy)
            return
        if copy is not None:
            sources[x] = copy
        self.taken[self.memory.root(made)] = self.memory.root(x)
        for last in (self.last_read, self.last_touched):
            last[root] = max(last.get(root, -1), last.get(own, -1))

    def _may_write(self, into: fx.Node, made: fx.Node, at: int, end: int) -> bool:
        """Returns whether a step may write its result into an input, which a later one would copy there."""
        call, root, own = self.plan.steps[at][1], self.root(into), self.root(made)
        if at < self.begin or call.func not in OVERWRITING or call.args[0] is not into or not look_alike(made, into):
            return False
        if self.written[root] > 1 or not self.results.isdisjoint((root, own)):
            return False
        if self.last_read.get(root, -1) > at or self.last_touched.get(own, -1) > end:
            return False
        others = nodes_in((*call.args[1:], *call.kwargs.values()))
        return all(other is into or self.root(other) is not root for other in others)


def _numbers_first(plan: Plan) -> None:
    """Puts first what computes numbers of Python and compares them, if it is made of inputs of one element.

    A step of an optimizer reads its counters one by one, each behind the writes of the parameter before.
    """
    moved: dict[fx.Node, int] = {}
    written: set[fx.Node] = set()
    ends = []
    for i, (node, call) in enumerate(plan.steps):
        read = {owner_of(x, plan.same) for x in nodes_in((call,))}
        if node is None:
            written |= read
            continue
        ends_here = is_symint(node) or bool(node.meta.get("is_check"))
        spec = plain_spec(node)
        is_small = spec is not None and spec.numel <= 1 or writing_form(call.func) is not None and _has_small(call)
        is_small = is_small and call.func is not _COPY and _is_sure(call)
        known = all(x.op != "call_function" or x in moved for x in read)
        if (ends_here or is_small) and known and written.isdisjoint(read):
            moved[node] = i
            if ends_here:
                ends.append(node)
    first: set[int] = set()
    while ends:
        node = ends.pop()
        if node in moved and moved[node] not in first:
            first.add(moved[node])
            ends += [owner_of(x, plan.same) for x in nodes_in((plan.steps[moved[node]][1],))]
    steps = plan.steps
    steps[:] = [steps[i] for i in sorted(first)] + [step for i, step in enumerate(steps) if i not in first]


def _is_sure(call: Call) -> bool:
    """Returns whether an operator can neither fail nor do anything but compute or copy."""
    if any(not _is_sure(inner) for inner in _inside(call)):
        return False
    func = call.func
    if func is operator.getitem or func is _COPY:
        return True
    if not _torch.operators.is_overload(func):
        return False
    if writing_form(func) is not None or writes_lists(func):  # such as come in steps of optimizers
        return not _may_divide_by_zero(call)
    effects = effects_of(func)
    if func.namespace != "aten" or effects.random or effects.data_dependent or _may_divide_by_zero(call):
        return False
    return torch.Tag.pointwise in func.tags or any(place is not None for place in effects.returns_view_of)


def _only_computes(node: fx.Node | None, call: Call) -> bool:
    """Returns whether a step makes something of what there is, compares numbers, and does nothing else."""
    if node is None or call.func is _COPY:
        return False
    return is_symint(node) or bool(node.meta.get("is_check")) or _is_sure(call)


def _has_small(call: Call) -> bool:
    """Returns whether an operator is given no tensor of more than one element."""
    specs = [plain_spec(x) for x in nodes_in((*call.args, *call.kwargs.values())) if not is_symint(x)]
    return all(spec is not None and spec.numel <= 1 for spec in specs)


def _may_divide_by_zero(call: Call) -> bool:
    packet = getattr(call.func, "overloadpacket", None)
    return packet in _DIVIDING or call.kwargs.get("rounding_mode") is not None


def _inside(call: Call) -> Iterator[Call]:
    return (x for x in (*call.args, *call.kwargs.values()) if isinstance(x, Call))
