"""What nodes have where AOTAutograd makes the graph: fake tensors as example inputs and in `meta["val"]`, with
`meta["tensor_meta"]`, and `meta["original_aten"]`.

This library's own tensors without data (`MetaTensor`) are made for traces. Compilers and passes of others know torch's
`FakeTensor`: they search a mode among the inputs, read shapes from nodes, compare storages. To make one takes a sixth
of the time that it takes to record an operator, so those of nodes are made when somebody reads one, and the tuples of
`tensor_meta` one by one.
"""

from __future__ import annotations

import copy
import operator
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.meta.symbols import solver_in


class Fakes:
    """The fake tensors of one graph, all of one mode.

    Args:
        graph: A graph with tensors without data in `meta["val"]` of its nodes. Where one stood, there is a fake tensor
            when somebody reads it. Each placeholder has one of its own; views share the storage of what they are views
            of, as they do when the graph runs.
        inputs: What the inputs are, if they are not what the placeholders say.

    Attributes:
        before: What stood in `meta["val"]`, by the names of the nodes.
    """

    def __init__(self, graph: fx.GraphModule, inputs: Sequence[Any] | None = None) -> None:
        self.before: dict[str, Any] = {}
        self._solver = solver_of(graph)
        self._unread: list[tuple[_Unread, Any, _Memory | None]] = []
        self._copies: list[tuple[_Unread, _Unread, Any]] = []
        metas: dict[fx.Node, _Unread] = {}
        placeholders, these = graph.graph.find_nodes(op="placeholder"), weakref.ref(self)
        for node in graph.graph.nodes:
            said = node.meta
            if "val" in said:
                val = self.before[node.name] = said["val"]
                if type(val) in _OF_TENSORS or node.op == "placeholder":
                    meta = metas[node] = _Unread(said)
                    if type(val) is MetaTensor:
                        dict.__setitem__(meta, _TENSOR, _UNREAD)
                    meta.fakes = these
                    object.__setattr__(node, "meta", meta)  # else the node is looked up in its graph
                    if node.op == "call_function":
                        _put_operator(node, meta)
                        self._unread.append((meta, val, _memory_of(node, metas)))
                    elif node.op != "placeholder":
                        self._unread.append((meta, val, None))
        for node in placeholders:
            if node not in metas:  # of a graph that was pickled
                metas[node] = node.meta = _Unread(node.meta)
                metas[node].fakes = these
        self._placeholders = [metas[node] for node in placeholders]
        self._said = [dict.get(meta, "val") for meta in self._placeholders]
        self._given = self._said if inputs is None else inputs
        graph.graph.fakes = self  # type: ignore[attr-defined]  # which would be a cycle, if `meta` held it
        if any("unbacked" in meta for meta, _, _ in self._unread):  # inductor reads where numbers are found, and no val
            self.read()

    @cached_property
    def mode(self) -> Any:
        """Their `FakeTensorMode`, which has a solver."""
        return _torch.inductor.fake_mode(_torch.symbolic.shape_env() if self._solver is None else self._solver)

    @cached_property
    def inputs(self) -> list[Any]:
        """A fake tensor for each input, or its symbolic number."""
        with _outside_of_traces():
            made = [fake_of(x.meta_spec, self.mode) if isinstance(x, MetaTensor) else x for x in self._given]
        for meta, val, fake in zip(self._placeholders, self._said, made, strict=True):
            if dict.get(meta, "val") is val:
                dict.__setitem__(meta, "val", fake)
        return made

    def read(self) -> None:
        """Makes those of all nodes, unless that was done. What a pass has put in place of one stays."""
        unread, self._unread = self._unread, []
        made: dict[int, Any] = dict(zip(map(id, self._placeholders), self.inputs, strict=True))
        with _outside_of_traces():
            for meta, val, memory in unread:
                of = None if memory is None else made[id(memory[0])]
                fake = made[id(meta)] = self._fake(val, of, None if memory is None else memory[1])
                if dict.get(meta, "val") is val:
                    dict.__setitem__(meta, "val", fake)
                if "unbacked" in meta and self._solver is not None:  # else all numbers are known by now
                    meta["unbacked_bindings"] = _torch.symbolic.bindings_of(self._solver, meta["unbacked"], fake)
        copies, self._copies = self._copies, []
        for meta, copied, val in copies:
            fake = made[id(copied)] = made.get(id(meta), val)
            if dict.get(copied, "val") is val:
                dict.__setitem__(copied, "val", fake)
        for meta in (*self._placeholders, *(meta for meta, _, _ in unread), *(copied for _, copied, _ in copies)):
            meta.fakes = None

    def add(self, meta: _Unread, val: Any) -> None:
        """Adds the `meta` of a new node, which gives a tensor like `val`."""
        self._unread.append((meta, val, None))

    def add_copy(self, meta: _Unread, copied: _Unread) -> None:
        """Adds the `meta` of a copy of a node: it gets the fake tensor of that."""
        self._copies.append((meta, copied, dict.get(copied, "val")))

    def put_back(self, graph: fx.GraphModule) -> None:
        """Puts back what stood in `meta["val"]` of the nodes of a graph, which may be another one with such nodes."""
        for node in graph.graph.nodes:
            if isinstance(node.meta, _Unread):
                node.meta = _as_it_is(node.meta)
            if node.meta.get(_TENSOR) is _UNREAD:
                del node.meta[_TENSOR]
            if node.name in self.before:
                node.meta["val"] = self.before[node.name]

    def _fake(self, val: object, of: object, part: int | None) -> Any:
        """Returns what a node gives, as fake tensors.

        Args:
            val: The same, of tensors without data.
            of: What the node gives a view of, or takes a part of.
            part: Which part; None for a view.
        """
        if part is not None and isinstance(of, tuple | list):
            return of[part]
        if isinstance(val, tuple | list):
            return type(val)(self._fake(v, of, None) for v in val)
        if not isinstance(val, MetaTensor):
            return val
        return fake_of(val.meta_spec, self.mode, of.untyped_storage() if isinstance(of, torch.Tensor) else None)


@contextmanager
def _outside_of_traces() -> Iterator[None]:
    """Runs the block so that tensors are made as outside of a trace: a `val` may be read while the graph is traced."""
    with (
        _torch.dispatch.disable_current_modes(),
        _torch.dispatch.without_function_modes(),
        _torch.dispatch.without_transforms(),
        torch.inference_mode(False),
    ):
        yield


_OF_TENSORS = frozenset({MetaTensor, tuple, list})

_Memory = tuple["_Unread", int | None]
"""The `meta` of the node whose memory another one gives, and which part of what that gives; None for a view of it."""


def _memory_of(node: fx.Node, metas: Mapping[fx.Node, _Unread]) -> _Memory | None:
    """Returns whose memory the result of an operator has."""
    if node.target is operator.getitem:
        args: Any = node.args
        return (metas[args[0]], args[1]) if isinstance(args[0], fx.Node) and args[0] in metas else None
    if not _torch.operators.is_overload(node.target) or (effects := effects_of(node.target)).pure:
        return None
    if not effects.returns_view_of:
        return None
    place = effects.returns_view_of[0] or effects.returns_written[0]
    if place is None:
        return None
    source = argument_at(place, node.args, node.kwargs)
    return (metas[source], None) if isinstance(source, fx.Node) and source in metas else None


def _put_operator(node: fx.Node, meta: dict[str, Any]) -> None:
    """Notes the operator that a node is, or is a part of, unless the trace has noted one that was replaced by it."""
    if _torch.operators.is_overload(node.target):
        dict.setdefault(meta, _OPERATOR, node.target)
    elif node.target is operator.getitem:
        source: Any = node.args[0]
        if _OPERATOR in source.meta:
            dict.setdefault(meta, _OPERATOR, dict.__getitem__(source.meta, _OPERATOR))


_OPERATOR, _TENSOR = "original_aten", "tensor_meta"
_UNREAD = object()
"""What stands in `meta["tensor_meta"]` until it is read."""


class _Unread(dict[str, Any]):
    """The `meta` of a node: makes the fake tensors of the graph when somebody reads one.

    Attributes:
        fakes: The fake tensors, which the graph holds; None when they were made.
    """

    __slots__ = ("fakes",)

    fakes: weakref.ref[Fakes] | None

    def copied_into(self, graph: fx.Graph) -> _Unread:
        """Returns the `meta` of a copy of the node in another graph: no fake tensor is made for that."""
        copied, fakes = _Unread(_as_it_is(self)), self._of()
        copied.fakes = self.fakes
        if fakes is not None:
            fakes.add_copy(self, copied)
            graph.fakes = fakes  # type: ignore[attr-defined]  # it may outlive the other one
        return copied

    def changed_in(self, graph: fx.Graph, spec: Spec, val: MetaTensor) -> dict[str, Any]:
        """Returns the `meta` of a node in another graph that is like this one, but gives another tensor."""
        fakes, own = self._of(), dict.get(self, "val", self)
        changed = _Unread({**_as_it_is(self), "spec": spec, "val": val})
        if dict.__contains__(changed, _TENSOR):
            dict.__setitem__(changed, _TENSOR, _UNREAD)
        changed.fakes = self.fakes
        if fakes is not None:
            fakes.add(changed, val)
            graph.fakes = fakes  # type: ignore[attr-defined]
        elif hasattr(own, "fake_mode"):
            with _outside_of_traces():
                dict.__setitem__(changed, "val", fake_of(spec, own.fake_mode))
        return changed

    def _of(self) -> Fakes | None:
        """Returns the fake tensors, if they are to be made yet."""
        return None if self.fakes is None else self.fakes()

    def _read(self) -> None:
        fakes = self._of()
        if fakes is not None:
            fakes.read()

    def _read_key(self, key: str) -> None:
        """Makes what stands for a key, if it is not made yet."""
        if key == "val":
            if type(dict.get(self, key)) in _OF_TENSORS:  # a number is what it is
                self._read()
        elif key == _TENSOR and dict.get(self, key) is _UNREAD:
            self._read()
            dict.__setitem__(self, key, _torch.graphs.tensor_metadata(dict.__getitem__(self, "val")))

    def _read_all(self) -> None:
        self._read()
        self._read_key(_TENSOR)

    def __getitem__(self, key: str) -> Any:
        self._read_key(key)
        return dict.__getitem__(self, key)

    def get(self, key: str, default: object = None) -> Any:
        self._read_key(key)
        return dict.get(self, key, default)

    def pop(self, key: str, *default: object) -> Any:
        self._read_key(key)
        return dict.pop(self, key, *default)

    def setdefault(self, key: str, default: object = None) -> Any:
        self._read_key(key)
        return dict.setdefault(self, key, default)

    def popitem(self) -> tuple[str, Any]:
        self._read_all()
        return dict.popitem(self)

    def __iter__(self) -> Iterator[str]:  # it is defined, so `dict(meta)` and `{**meta}` read item by item
        return dict.__iter__(self)

    def copy(self) -> dict[str, Any]:
        return dict(self)

    __copy__ = copy

    def items(self) -> Any:
        self._read_all()
        return dict.items(self)

    def values(self) -> Any:
        self._read_all()
        return dict.values(self)

    def __or__(self, other: dict[str, Any]) -> Any:  # type: ignore[override]
        return dict(self) | other

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _as_it_is(meta: _Unread) -> dict[str, Any]:
    """Returns a `meta` as a dict, without reading anything. `dict.copy` would read item by item, too."""
    return dict(dict.items(meta))


def solver_of(graph: fx.GraphModule) -> Any:
    """Returns the solver that the symbolic numbers in a graph belong to, or None if it has none."""
    specs = (n.meta["spec"] for n in graph.graph.nodes if "spec" in n.meta)
    found = next((spec.solver for spec in specs if spec.solver is not None), None)
    return solver_in(n.meta.get("val") for n in graph.graph.nodes) if found is None else found


def fake_of(spec: Spec, mode: Any, storage: torch.UntypedStorage | None = None) -> Any:
    """Returns a fake tensor like a spec.

    Args:
        spec: What it is like.
        mode: Its mode.
        storage: The storage of the fake tensor that it is a view of, if it is one.
    """
    if storage is None and spec.offset == 0:
        tensor = torch.empty_strided(spec.size, spec.stride, dtype=spec.dtype, device="meta")
    elif storage is None:
        whole = torch.empty((spec.extent,), dtype=spec.dtype, device="meta")
        tensor = whole.as_strided(spec.size, spec.stride, spec.offset)
    else:
        tensor = torch.empty(0, dtype=spec.dtype, device="meta")
        tensor.set_(storage, spec.offset, spec.size, spec.stride)
    return _torch.inductor.fake_over(mode, tensor, spec.device)
