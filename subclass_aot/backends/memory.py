"""Finds the tensors of a graph that share memory, and the memory that the graph made itself."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import torch
from torch import fx

from subclass_aot.backends.in_place import BACKWARD_OF, VIEW_OF, WRITING
from subclass_aot.backends.lists import writing_form
from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.engine.passes import is_symint

_aten = torch.ops.aten


class Memory:
    """The memory of the nodes of a graph. What is not known of an operator is taken to be the worst.

    Attributes:
        own: The nodes on memory that the graph made.
        whole: Those of them that are no view of another.
    """

    def __init__(self, nodes: Iterable[fx.Node]) -> None:
        self.own: set[fx.Node] = set()
        self.whole: set[fx.Node] = set()
        self._towards: dict[fx.Node, fx.Node] = {}  # one node for all that may share memory
        self._lists: set[fx.Node] = set()  # of new tensors
        for node in nodes:
            self._add(node)

    def root(self, node: fx.Node) -> fx.Node:
        """Returns one node for all that may be on the same memory."""
        towards = self._towards
        root = node
        while towards[root] is not root:
            root = towards[root]
        while towards[node] is not root:
            towards[node], node = root, towards[node]
        return root

    def _add(self, node: fx.Node) -> None:
        self._towards[node] = node
        if node.op != "call_function" or is_symint(node):
            return
        sources: Iterable[object] = node.all_input_nodes
        own = False
        takes_list = bool(node.args) and isinstance(node.args[0], list | tuple)
        form = writing_form(node.target) if takes_list else None
        if form is not None:
            sources = ()
            parts = [user for user in node.users if user.target is operator.getitem]
            self._lists.update([node] if len(form.written) == 1 else parts)
        elif node in self._lists:  # one of several
            sources = ()
        elif node.target is operator.getitem:
            source: object = node.args[0]
            sources, own = (source,), isinstance(source, fx.Node) and source in self.own
            if source in self._lists:
                sources, own = (), True
                self.whole.add(node)
        elif _torch.operators.is_overload(node.target):
            viewed = [place for place in effects_of(node.target).returns_view_of if place is not None]
            copied = copied_by(node)
            if viewed or copied is not None:
                source = argument_at(viewed[0], node.args, node.kwargs) if viewed else copied
                sources, own = (source,), isinstance(source, fx.Node) and source in self.own
            elif makes_new(node.target):
                sources, own = (), True
                self.whole.add(node)
        if own:
            self.own.add(node)
        for shared in sources:
            if isinstance(shared, fx.Node) and not is_symint(shared):
                self._towards[self.root(shared)] = self.root(node)


def copied_by(node: fx.Node) -> fx.Node | None:
    """Returns the argument that an operator does nothing but copy: `x ** 1`, which the gradient of `x ** 2` has."""
    if node.target is not _aten.pow.Tensor_Scalar or node.args[1:] != (1,):
        return None
    source = node.args[0]
    is_same = isinstance(source, fx.Node) and source.meta.get("spec") is node.meta.get("spec") is not None
    return source if is_same else None  # type: ignore[return-value]


def makes_new(func: _torch.operators.Operator) -> bool:
    """Returns whether what an operator returns is on new memory, whatever it is given."""
    effects = effects_of(func)
    if func.namespace != "aten" or effects.composite or not effects.pure:
        return False
    return not {torch.Tag.core, torch.Tag.pointwise}.isdisjoint(func.tags) or func in _NEW


_NEW = {
    *VIEW_OF,
    *BACKWARD_OF,
    *WRITING,
    *(
        getattr(_aten, name).default
        for name in (
            "zeros", "ones", "new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided", "zeros_like",
            "ones_like", "empty_like", "sum", "mv", "dot", "addmv", "baddbmm", "stack",
        )
    ),
}  # fmt: skip
"""Operators that return new memory, beside those of which their tags say it."""
