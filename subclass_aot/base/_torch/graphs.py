"""Graphs that are gone when nobody uses them any more.

Note [Graphs without the collector]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A graph refers to its nodes, they to each other and to the graph, and the graph to its module: so each would stay until
the collector comes by, and with it all that nodes know (tensors without data, symbols and their solver). A graph of
this library refers to its module weakly. When the module dies, references are counted: if the graph and its nodes have
none but their own, the graph is dismantled. Else somebody works with it, and all is as torch has it: the graph keeps
its module, and the collector frees both.

How many references nodes have in all follows from how many there are, and from what they read. Where the sum is
another, the references of each part are counted one by one, which takes thirty times as long.
"""

from __future__ import annotations

import gc
import operator
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.graph import _FindNodesLookupTable, _Namespace
from torch.fx.immutable_collections import immutable_dict, immutable_list

from subclass_aot.base.tricks import is_on


def make_graph_module(root: torch.nn.Module | dict[str, Any], graph: Graph, name: str) -> GraphModule:
    """Makes a module of a graph. It generates its Python code when it is first run or printed; most graphs never are.

    The lazy form is private. When it goes: the public one, which takes a quarter of the time of a trace more.
    """
    return _Module(root, graph, name)


def as_plain_module(module: GraphModule) -> GraphModule:
    """Returns a module of the same graph that has what any `GraphModule` has, and nothing else: TorchScript can compile
    it, which reads the methods of a lazy one, too. Its code is generated when somebody reads it.
    """
    plain = _PlainModule(module, module.graph, type(module).__name__)
    plain.meta = module.meta
    return plain


def waits_for_code(module: GraphModule) -> bool:
    """Returns whether calling a module from `as_plain_module` runs its graph, and nothing else: nobody has read or
    replaced its code, and there are no hooks.

    Hooks have private names. When they go: the answer is no, and the code is generated.
    """
    table = vars(module)
    hooks = torch.nn.modules.module._has_any_global_hook() or any(map(table.get, _HOOKS))
    return not hooks and "forward" not in table and isinstance(vars(type(module)).get("__call__"), _Waits)


_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_compiled_call_impl",
)  # fmt: skip


def new_node(
    graph: Graph, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, name: str | None
) -> Node:
    """Makes a node where the graph is written, as `Graph.create_node` does, in less than half of the time.

    That searches arguments for symbolic numbers, which are nodes in graphs of this library. The tables of a graph have
    no public names. When one of them goes: `create_node`.

    Args:
        graph: The graph.
        op: What kind of node it is.
        target: What it calls.
        args: Its arguments.
        kwargs: Its arguments by keyword.
        name: Its name, or what that begins with where another node has it. If left out, its target says it.
    """
    if name is None:
        name = graph._target_to_str(target)
    if graph._owning_module is not None:  # which may have hooks that see new nodes
        node = graph.create_node(op, target, name=name)
        object.__setattr__(node, "args", args)  # past `Node.__setattr__`, which looks the node up in its graph
        object.__setattr__(node, "kwargs", kwargs or {})
        return node
    names = graph._graph_namespace
    node = Node(graph, _name_in(names, name), op, target, args, kwargs or {})
    names._obj_to_name[node] = node.name
    graph._insert(node)
    graph._find_nodes_lookup_table.table[op, target if op == "call_function" else None][node] = None
    graph._len += 1
    return node


def _name_in(names: _Namespace, name: str) -> str:
    """Returns a name that no node has yet, as `create_name` does."""
    base, _, number = name.rpartition("_")
    counts, used = names._base_count, names._used_names
    if name not in used and base in counts and number.isdecimal():
        counts[base] = int(number)
    elif name in used and name in counts:
        count = counts[name] + 1
        while f"{name}_{count}" in used:
            count += 1
        counts[name] = count
        name = f"{name}_{count}"
    else:
        return names.create_name(name, None)
    used.add(name)
    return name


def arguments_with(node: Node, replaced: Callable[[Node], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a node with others in the place of nodes.

    By names that are private: those that are public are properties in Python. When they go: `fx.map_arg`.

    Args:
        node: The node.
        replaced: Gives for each node what stands in its place.
    """
    kwargs: Any = node._kwargs
    return _map(node._args, replaced), _map(kwargs, replaced) if kwargs else kwargs


_map: Any = torch._C._fx_map_arg


def tensor_metadata(tensor: torch.Tensor) -> Any:
    """Returns what torch's tracers put into `meta["tensor_meta"]` of a node.

    It has no public name. When it goes: nodes have `meta["val"]`, which has the same and more.
    """
    from torch.fx.passes.shape_prop import _extract_tensor_metadata

    return _extract_tensor_metadata(tensor)


def dismantle(graph: Graph) -> None:
    """Dismantles a graph that nobody uses any more, so that it need not wait for the collector.

    A graph whose nodes somebody goes through stays as it is: torch's iterator would read memory that is no node. There
    is no public form. When it goes: nothing, and graphs wait.
    """
    if sys.getrefcount(graph._root) > _OF_A_ROOT:
        return
    for node in [graph._root, *graph.nodes]:
        node.users.clear()
        # Past `Node.__setattr__`, which takes the node out of a table for each, and puts it back.
        object.__setattr__(node, "_prev", None)
        object.__setattr__(node, "_next", None)
    vars(graph).clear()


_OF_A_ROOT = 5
"""The references to the root of a graph: those of the graph, of its method that inserts nodes, of the nodes before and
behind it, and the argument of `getrefcount`. An iterator over its nodes has one more."""


class _WeaklyOwned(Graph):
    """A graph that does not keep the module alive that it belongs to. When the attribute goes: as `dismantle`."""

    @property
    def owning_module(self) -> Any:
        """The module that it belongs to."""
        owner = self._owning_module
        return owner() if isinstance(owner, weakref.ref) else owner

    @owning_module.setter
    def owning_module(self, module: Any) -> None:
        self._owning_module: Any = weakref.ref(module) if isinstance(module, _Owner) else module

    def _python_code(self, root_module: str, namespace: _Namespace, **kwargs: Any) -> Any:
        code = super()._python_code(root_module, namespace, **kwargs)
        # What writes the code waits for the collector: its functions refer to each other. What they name need not.
        named, code.globals = code.globals, dict(code.globals)
        named.clear()
        namespace._obj_to_name.clear()
        return code

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_owning_module": self.owning_module}


class _Owner(GraphModule):
    """The module of a graph of this library. See Note [Graphs without the collector]."""

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if type(graph) is Graph and is_on("weak graphs"):
            graph.__class__ = _WeaklyOwned
        GraphModule.graph.__set__(self, graph)  # type: ignore[attr-defined]

    def __del__(self) -> None:
        table = vars(self)
        if type(table.get("_graph")) is not _WeaklyOwned or sys.is_finalizing():
            return
        if table["_graph"].owning_module not in (None, self):
            return
        if not _has_own_references(table) and _is_held(table):
            table["_graph"]._owning_module = self  # the module is alive again
        else:
            dismantle(table["_graph"])


class _Module(_Owner, _LazyGraphModule):
    """One whose code is generated when it is needed."""


class _PlainModule(_Owner):
    """One whose code is generated when somebody reads it, calls it or has it recompiled. Most compilers read nodes."""

    def recompile(self) -> Any:
        """Generates the code, but for the first time, when the module is made: then the code waits."""
        cls = type(self)  # which is the class of this module alone
        if "forward" not in vars(cls):
            for name in ("forward", "__call__"):
                setattr(cls, name, _Waits(self, name))
            return None
        if isinstance(vars(cls).get("__call__"), _Waits):
            del cls.__call__
        return super().recompile()

    def __getattr__(self, name: str) -> Any:
        if name not in _CODE or "_graph" not in vars(self):
            return super().__getattr__(name)
        self.recompile()
        return vars(self)[name]


_CODE = frozenset({"_code", "_lineno_map", "_prologue_start"})
"""What a module has of its code, for which there are no public names. When one goes: it is not asked for."""


class _Waits:
    """A method of a module whose code waits.

    Args:
        module: The module.
        name: The name of the method.
    """

    def __init__(self, module: _PlainModule, name: str) -> None:
        self._module = weakref.ref(module)
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        module = self._module()
        assert module is not None
        module.recompile()
        return getattr(owner if instance is None else instance, self._name)


def _has_own_references(table: dict[str, Any]) -> bool:
    """Returns whether the graph of a module has as many references as a graph that nobody else refers to.

    What refers to nodes has private names. When they go: `_is_held` alone.

    Args:
        table: The attributes of the module. No variable here or in the caller refers to the graph.
    """
    graph = table["_graph"]
    nodes: Any = [graph._root, *graph.nodes]
    own = [x for node in nodes for x in (node.users, node._input_nodes)]
    known = _OF_A_NODE * len(nodes) + sum(map(len, own))
    level: list[Any] = [x for node in nodes if node._input_nodes for x in (node._args, node._kwargs) if x]
    while level:
        own += level
        level = [x for x in gc.get_referents(*level) if type(x) in _PARTS]
        inner = [x for x in level if type(x) is not Node]
        known += len(level) - len(inner)
        level = [x for x in inner if Node in map(type, gc.get_referents(x))]
    counted = sys.getrefcount
    inner = []
    return (
        sum(map(counted, nodes)) == known
        and sum(map(counted, own)) == _OF_A_CONTAINER * len(own)
        and counted(graph) == len(nodes) + _OF_A_GRAPH
    )


_OF_A_NODE = 6
"""The references to a node, but for those of nodes that read it or that it reads: those of the nodes before and behind
it, of two tables of the graph, of a list, and of `map`. A root has those of the graph and of its method in place of
tables.
"""
_OF_A_CONTAINER = 3
"""The references to what a node has its arguments in: those of the node, of a list, and of `map`."""
_OF_A_GRAPH = 3
"""The references to a graph, but for those of its nodes: those of the module, of a variable, and of an argument."""


def _is_held(table: dict[str, Any]) -> bool:
    """Returns whether anybody refers to the graph of a module, or to a part of it, but the module and the graph itself.

    Args:
        table: The attributes of the module. No variable here or in the caller refers to the graph.
    """
    level: list[Any] = [table["_graph"]]
    parts = {id(level[0]): level[0]}
    references = Counter(parts.keys())  # the module has one reference to each
    while level:
        inside = gc.get_referents(*level)
        references.update(map(id, inside))
        level = list({id(x): x for x in inside if type(x) in _PARTS and id(x) not in parts}.values())
        parts.update(zip(map(id, level), level, strict=True))
    # One more is the list's, and one that of `map`. What has no nodes in it may be anybody's: sizes, for one.
    own = [x for x in parts.values() if type(x) in _NODES or Node in map(type, gc.get_referents(x))]
    del level, inside, parts
    known = [references[id(x)] + 2 for x in own]
    return any(map(operator.gt, map(sys.getrefcount, own), known))


_NODES = {Node, _WeaklyOwned}
_PARTS = {
    *_NODES, tuple, list, dict, defaultdict, set, immutable_list, immutable_dict, MethodType, BuiltinMethodType,
    _Namespace, _FindNodesLookupTable,
}  # fmt: skip
"""What a graph is made of. What nodes say of themselves leads on to other graphs, perhaps."""
