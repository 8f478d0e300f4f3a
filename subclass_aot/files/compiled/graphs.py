"""Graphs as JSON, and back: nodes in order, operators by name, tensors without data as specs, constants as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.plain_values import Json
from subclass_aot.base.refused import Refused, at
from subclass_aot.engine.descriptors import InputDescriptor, OutputDescriptor, describe, descriptor_of
from subclass_aot.files.compiled.codec import Decoder, Encoder, sized
from subclass_aot.files.compiled.names import FUNCTIONS, name_of_operator, operator_named
from subclass_aot.files.compiled.records import NodeAt
from subclass_aot.meta import MetaTensor, Spec, new_leaf

_NUMBER = "{node} is a number that depends on data, or no whole number. Compile with dynamic=False"
_FUNCTION = "it runs {target}, which is a function of Python, and no operator"
_CONSTANT = "the constant {name} is no dense tensor with data"
_NO_GRAPH = "{written!r:.80} is no node of a graph"


def encode_graph(module: fx.GraphModule, encoder: Encoder, blobs: list[bytes]) -> Json:
    """Returns a graph as JSON. Checks are left out: they follow from the signature.

    Args:
        module: The graph.
        encoder: What writes its values.
        blobs: Gets the data of its constants.

    Raises:
        Refused: It has something that cannot be written.
    """
    position: dict[fx.Node, int] = {}
    nodes = []
    for node in module.graph.nodes:
        if not node.meta.get("is_check"):
            with at(f"node {node.name}"):
                nodes.append(_encode_node(module, node, position, encoder, blobs))
            position[node] = len(position)
    marked = [sorted(module.meta.get(name, ())) for name in ("static_input_indices", "free_outputs")]
    return [*marked, nodes]


def _encode_node(
    module: fx.GraphModule, node: fx.Node, position: Mapping[fx.Node, int], encoder: Encoder, blobs: list[bytes]
) -> Json:
    def plain(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return NodeAt(position[value])
        if isinstance(value, dict):
            return {key: plain(x) for key, x in value.items()}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(plain, value))
        if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
            return (tuple if isinstance(value, tuple) else list)(map(plain, value))
        return value

    target: Json
    match node.op:
        case "placeholder":
            target = [encoder.write(descriptor_of(node)), bool(node.meta.get("is_static_input"))]
        case "get_attr":
            target = _encode_constant(module, str(node.target), encoder, blobs)
        case "output":
            target = [encoder.write(desc) for desc in descriptor_of(node)]
        case "call_function":
            names = [name for name, function in FUNCTIONS.items() if function is node.target]
            target = names[0] if names else _name_of(node.target)
        case other:
            raise Refused(f"it is a {other}, and no operator")
    val = None if node.op == "output" else encoder.write(_specs(node.meta.get("val"), node))
    return [node.op, node.name, target, encoder.write(plain(node.args)), encoder.write(plain(node.kwargs)), val]


def _name_of(target: object) -> str:
    if not _torch.operators.is_overload(target):
        raise Refused(_FUNCTION.format(target=getattr(target, "__name__", target)))
    return name_of_operator(target)


def _specs(val: object, node: fx.Node) -> Any:
    """Returns the value of a node, with specs in place of tensors without data."""
    if isinstance(val, MetaTensor):
        return val.meta_spec
    if isinstance(val, tuple | list):
        return tuple(_specs(x, node) for x in val)
    if isinstance(val, torch.Tensor):
        return Spec.of(val)
    if val is not None and not isinstance(val, bool | int | float | torch.SymInt):
        raise Refused(_NUMBER.format(node=node.name))
    return val


def _encode_constant(module: fx.GraphModule, name: str, encoder: Encoder, blobs: list[bytes]) -> Json:
    tensor = getattr(module, name, None)
    if type(tensor) is not torch.Tensor or tensor.is_meta or tensor.layout is not torch.strided:
        raise Refused(_CONSTANT.format(name=name))
    spec = Spec.make(tuple(tensor.shape), tensor.stride(), 0, tensor.dtype, tensor.device)
    if not tensor.is_contiguous():
        spec = Spec.make(tuple(tensor.shape), tensor.contiguous().stride(), 0, tensor.dtype, tensor.device)
    data = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().view(-1)
    blobs.append(bytes(data.view(torch.uint8).tolist()) if data.numel() else b"")
    return [encoder.write(spec), tensor.stride(), len(blobs) - 1]


class GraphReader:
    """Makes graphs.

    Args:
        decoder: What reads their values.
        blobs: The data of constants.
    """

    def __init__(self, decoder: Decoder, blobs: Sequence[bytes]) -> None:
        self.decoder = decoder
        self.blobs = blobs

    def read(self, written: Json, name: str) -> fx.GraphModule:
        """Returns the graph.

        Args:
            written: What `encode_graph` gave.
            name: The name of the class of the module.

        Raises:
            Refused: It is none.
        """
        static, free, listed = sized(written, 3)
        graph, constants = fx.Graph(), dict[str, torch.Tensor]()
        nodes: list[fx.Node] = []
        for each in listed:
            parts = sized(each, 6)
            with at(f"node {parts[1]!s:.80}"):
                nodes.append(self._node(graph, nodes, constants, parts))
        module = _torch.graphs.make_graph_module(constants, graph, name)
        module.meta["static_input_indices"] = tuple(static)
        if free:
            module.meta["free_outputs"] = frozenset(free)
        return module

    def _node(
        self, graph: fx.Graph, nodes: list[fx.Node], constants: dict[str, torch.Tensor], written: list[Json]
    ) -> fx.Node:
        op, name, target, args, kwargs, val = written
        read = self.decoder.read
        given, named = _filled(read(args), nodes), _filled(read(kwargs), nodes)
        notes: dict[str, Any] = {}
        what: InputDescriptor | tuple[OutputDescriptor, ...] | None = None
        called: Any = name
        match op:
            case "placeholder":
                desc, is_static = sized(target, 2)
                what = read(desc)
                notes["is_static_input"] = is_static
                given = ()
            case "get_attr":
                constants[name] = self._constant(target)
            case "output":
                what = tuple(map(read, target))
                given = (tuple(given[0]),)
            case "call_function":
                called = FUNCTIONS.get(target) or operator_named(target)
            case _:
                raise Refused(_NO_GRAPH.format(written=op))
        node = _torch.graphs.new_node(graph, op, "output" if op == "output" else called, (), {}, name)
        node.args, node.kwargs = given, named  # which tells the nodes that they have a reader
        if op != "output":
            notes |= _vals(read(val))
        node.meta = notes
        if what is not None:
            describe(node, what)
        return node

    def _constant(self, written: Json) -> torch.Tensor:
        spec, stride, position = sized(written, 3)
        spec, blob = self.decoder.read(spec), self.blobs[position]
        found = torch.empty(spec.size, dtype=spec.dtype)
        if blob:
            found.view(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
        if tuple(stride) != found.stride():
            found = torch.empty_strided(spec.size, stride, dtype=spec.dtype).copy_(found)
        return found.to(spec.device)


def _vals(val: object) -> dict[str, Any]:
    if isinstance(val, Spec):
        return {"val": new_leaf(val), "spec": val}
    return {"val": _leaves(val)}


def _leaves(val: object) -> Any:
    if isinstance(val, tuple):
        return tuple(map(_leaves, val))
    return new_leaf(val) if isinstance(val, Spec) else val


def _filled(value: object, nodes: Sequence[fx.Node]) -> Any:
    """Returns arguments with nodes in their place."""
    if isinstance(value, NodeAt):
        return nodes[value.position]
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(_filled(x, nodes) for x in value)
    if isinstance(value, dict) and type(value) is dict:
        return {key: _filled(x, nodes) for key, x in value.items()}
    return value
