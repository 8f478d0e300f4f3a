"""A joint graph that passes have changed: what they may not change, and shapes and phases of what they put in."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.base.operators import effects_of
from subclass_aot.cost.without_data import meta
from subclass_aot.doors.joint import messages
from subclass_aot.doors.joint.records import name_of
from subclass_aot.engine.descriptors import (
    Descriptor,
    Inner,
    InputDescriptor,
    LiveInput,
    OutputDescriptor,
    Tangent,
    describe,
    descriptor_of,
    outermost,
    undescribed,
)
from subclass_aot.engine.passes import copied_node, is_backward
from subclass_aot.errors import JointGraphError
from subclass_aot.meta import MetaTensor, Spec, Storage, new_leaf
from subclass_aot.meta.symbols import SizesMustBeKnown, Symbols, is_symbolic, unbacked_sizes

_TAG, _FORWARD, _BACKWARD = "partitioner_tag", "is_forward", "is_backward"
_OF_SHAPES = ("val", "spec", "tensor_meta", "example_value")

Inputs = Sequence[tuple[InputDescriptor, Any]]
Outputs = Sequence[tuple[OutputDescriptor, Any]]
"""What each output is, and its spec; a number that is known, or None for a gradient that is zero, stands for itself."""


def spec_of(node: fx.Node) -> Any:
    """Returns what a node gives: the spec of a tensor, or a symbolic number."""
    return node.meta["spec"] if "spec" in node.meta else node.meta.get("val")


def notes_of(node: fx.Node) -> dict[str, Any]:
    """Returns what stands in `meta` of a node beside shapes and descriptors, as far as pickle takes it along."""
    notes = undescribed(node.meta, *_OF_SHAPES)
    return {key: x for key, x in notes.items() if _goes_through_pickle(x)}


def _goes_through_pickle(value: object) -> bool:
    try:
        pickle.dumps(value)
    except Exception as error:  # whatever a class says when it cannot be pickled
        pass_on_interruption(error)
        return False
    return True


def refuse_undecomposed(graph_module: fx.GraphModule, wanted: Collection[object], replaced: Container[str]) -> None:
    """Refuses a graph with operators that its compiler wants decomposed.

    Args:
        graph_module: The graph.
        wanted: These operators.
        replaced: The names of those that were replaced while tracing. Some stay all the same.

    Raises:
        JointGraphError: There is one.
    """
    for node in graph_module.graph.nodes:
        if wanted and node.op in ("call_module", "call_method"):
            raise JointGraphError(messages.NOT_AN_OPERATOR.format(node=node.name, target=node.target))
        if node.target in wanted and str(node.target) not in replaced:
            raise JointGraphError(messages.UNDECOMPOSED.format(node=node.name, operator=node.target))


def checked(graph_module: fx.GraphModule, inputs: Inputs, outputs: Outputs, symbols: Symbols | None) -> fx.GraphModule:
    """Copies a graph that passes have changed. Shapes are inferred anew, whatever they left in `meta`.

    Args:
        graph_module: The graph. It stays as it is.
        inputs: What its inputs were when it was traced.
        outputs: What its outputs were.
        symbols: The symbols of the trace, if it has some.

    Raises:
        JointGraphError: A pass changed what it must not change.
    """
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    _compare_inputs(placeholders, inputs)
    copies: dict[fx.Node, Any] = {}
    graph = fx.Graph()
    with _inferring(symbols):
        values: dict[fx.Node, Any] = {}
        for node, (desc, spec) in zip(placeholders, inputs, strict=True):
            values[node] = new_leaf(spec) if isinstance(spec, Spec) else spec
            copies[node] = _copy(graph, node, copies, values[node])
            describe(copies[node], desc)
            copies[node].meta[_TAG] = _BACKWARD if isinstance(outermost(desc), Tangent | LiveInput) else _FORWARD
        for node in graph_module.graph.nodes:
            if node.op not in ("placeholder", "output"):
                values[node] = _value_of(graph_module, node, values)
                copies[node] = _copy(graph, node, copies, values[node])
    results: Any = graph_module.graph.output_node().args[0]
    _compare_number(results, outputs)
    made = [_result(graph, fx.map_arg(x, copies.__getitem__), *out) for x, out in zip(results, outputs, strict=True)]
    describe(graph.output(tuple(made)), tuple(desc for desc, _ in outputs))
    return _torch.graphs.make_graph_module(graph_module, graph, "Joint")


@contextmanager
def _inferring(symbols: Symbols | None) -> Iterator[None]:
    """Runs the block so that operators give results without data, and assume nothing new of symbolic sizes."""
    with ExitStack() as stack:
        if symbols is not None:
            stack.enter_context(symbols.closed())
            stack.enter_context(_torch.dispatch.python_dispatcher())
            stack.enter_context(_torch.symbolic.quiet_about_unknowns())
        stack.enter_context(unbacked_sizes(None))
        stack.enter_context(_torch.switches.as_recorded())
        stack.enter_context(meta())
        yield


def _compare_inputs(placeholders: Sequence[fx.Node], inputs: Inputs) -> None:
    """Compares the inputs with those that the call brings.

    Raises:
        JointGraphError: One is gone, is new, stands elsewhere, or has other metadata.
    """
    expected = [desc for desc, _ in inputs]
    found = [descriptor_of(node) for node in placeholders]
    if len(found) == len(expected):  # a pass that makes the graph anew may forget what its inputs are
        found = [here or before for here, before in zip(found, expected, strict=True)]
    for desc in expected:
        if desc not in found:
            raise JointGraphError(messages.GONE.format(name=name_of(desc)))
    seen: set[Descriptor] = set()
    for node, desc in zip(placeholders, found, strict=True):
        if desc not in expected or desc in seen:
            raise JointGraphError(messages.ADDED.format(node=node.name))
        seen.add(desc)
    for i, (node, desc, (before, spec)) in enumerate(zip(placeholders, found, inputs, strict=True)):
        if desc != before:
            raise JointGraphError(messages.MOVED.format(position=i, name=name_of(desc), before=name_of(before)))
        val = dict.get(node.meta, "val")  # as it is: fake tensors are not made for this
        if isinstance(spec, Spec) and isinstance(val, torch.Tensor) and _metadata(val) != _metadata(spec):
            now, was = _text(val), _text(spec)
            raise JointGraphError(messages.INPUT_CHANGED.format(name=name_of(desc), now=now, before=was))


def _compare_number(results: Sequence[object], outputs: Outputs) -> None:
    if len(results) != len(outputs):
        names = ", ".join(name_of(desc) for desc, _ in outputs)
        raise JointGraphError(messages.COUNT.format(now=len(results), before=len(outputs), names=names))


def _copy(graph: fx.Graph, node: fx.Node, copies: Mapping[fx.Node, Any], value: object) -> fx.Node:
    """Copies a node, with what it gives and the phase that it belongs to in `meta`."""
    copy = copied_node(graph, node, copies, undescribed(node.meta, *_OF_SHAPES))
    copy.meta.setdefault("stack_trace", "")
    if isinstance(value, MetaTensor):
        copy.meta["spec"] = value.meta_spec
        copy.meta["val"] = new_leaf(value.meta_spec)
    elif isinstance(value, tuple | list):
        copy.meta["val"] = tuple(new_leaf(x.meta_spec) if isinstance(x, MetaTensor) else x for x in value)
    elif value is not None:
        copy.meta["val"] = value
    if any(map(is_backward, copy.all_input_nodes)):
        copy.meta[_TAG] = _BACKWARD
    copy.meta.setdefault(_TAG, _FORWARD)
    return copy


def _value_of(owner: fx.GraphModule, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """Returns what a node gives, without data.

    Raises:
        JointGraphError: It writes into its arguments, or nobody knows what it gives.
    """
    target: Any = node.target
    if node.op == "get_attr":
        return operator.attrgetter(target)(owner)
    if _torch.operators.is_overload(target) and effects_of(target).writes:
        raise JointGraphError(messages.WRITES.format(node=node.name, operator=target))
    if node.meta.get("unbacked"):  # run again, the operator would make other numbers
        return _without_data(node.meta["val"])
    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
    given = [x for x in map(values.__getitem__, node.all_input_nodes) if isinstance(x, MetaTensor)]
    versions = list(map(_torch.autograd.version_of, given))
    try:
        value = _run(owner, node, args, kwargs)
    except (Exception, SizesMustBeKnown) as error:  # of the operator, or of a function that a pass put in
        pass_on_interruption(error)
        val = node.meta.get("val")
        if val is None:
            text = messages.NO_SHAPE.format(node=node.name, operator=target, reason=first_line(error))
            raise JointGraphError(text) from error
        return _without_data(val)
    if list(map(_torch.autograd.version_of, given)) != versions:
        raise JointGraphError(messages.WRITES.format(node=node.name, operator=target))
    hidden = _torch.operators.is_overload(target) and not any(effects_of(target).returns_view_of)
    waits = target is _torch.collectives.functional_collectives.wait_tensor.default  # it returns its argument
    hidden = hidden and not waits
    if hidden and isinstance(value, MetaTensor) and any(Storage.of(x) is Storage.of(value) for x in given):
        raise JointGraphError(messages.HIDDEN_VIEW.format(node=node.name, operator=target))
    return value


def _run(owner: fx.GraphModule, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    target: Any = node.target
    if node.op == "call_module":
        return owner.get_submodule(target)(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def _without_data(val: Any) -> Any:
    if isinstance(val, tuple | list):
        return tuple(map(_without_data, val))
    return new_leaf(Spec.of(val)) if isinstance(val, torch.Tensor) else val


def _result(graph: fx.Graph, node: Any, desc: OutputDescriptor, before: Any) -> Any:
    """Compares an output with what is made of it at a call; what belongs to a wrapper has the strides that it had.

    Raises:
        JointGraphError: It has other metadata, or reads what it must not read.
    """
    name = name_of(desc)
    if isinstance(node, fx.Node) and not desc.is_backward and is_backward(node):
        raise JointGraphError(messages.READS_BACKWARD.format(name=name, node=node.name))
    now = spec_of(node) if isinstance(node, fx.Node) else node
    if not isinstance(before, Spec):
        known = not (is_symbolic(before) or is_symbolic(now))
        if isinstance(now, Spec) or is_symbolic(before) != is_symbolic(now) or (known and now != before):
            raise JointGraphError(messages.OUTPUT_CHANGED.format(name=name, now=_text(now), before=_text(before)))
        return node
    if not isinstance(now, Spec) or _metadata(now) != _metadata(before):
        raise JointGraphError(messages.OUTPUT_CHANGED.format(name=name, now=_text(now), before=_text(before)))
    if not isinstance(desc, Inner) or now.stride == before.stride or before.solver is not None:
        return node
    aten = torch.ops.aten
    empty = graph.call_function(aten.new_empty_strided.default, (node, list(before.size), list(before.stride)))
    again = graph.call_function(aten.copy.default, (empty, node))
    for each in (empty, again):
        each.meta = {_TAG: node.meta[_TAG], "stack_trace": "", "spec": before, "val": new_leaf(before)}
    return again


def _metadata(tensor: torch.Tensor | Spec) -> tuple[object, ...]:
    """Returns what of a tensor must stay: all but its strides."""
    size = tensor.size if isinstance(tensor, Spec) else tensor.shape
    return tuple(map(str, size)), tensor.dtype, tensor.device, tensor.layout


def _text(what: Any) -> str:
    if isinstance(what, Spec | torch.Tensor):
        size = what.size if isinstance(what, Spec) else what.shape
        return f"{str(what.dtype).removeprefix('torch.')}[{', '.join(map(str, size))}] on {what.device}"
    return "absent" if what is None else str(what)
