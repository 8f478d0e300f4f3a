"""Graphs as JSON, and back: nodes in order, operators by name, tensors without data as specs, constants as bytes."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption
from subclass_aot.descriptors import InputDescriptor, OutputDescriptor, describe, descriptor_of
from subclass_aot.meta import MetaTensor, Spec, meta, new_leaf
from subclass_aot.passes import new_node
from subclass_aot.saved.codec import Decoder, Encoder, Json
from subclass_aot.saved.names import FUNCTIONS, name_of_operator, operator_named
from subclass_aot.saved.refused import Refused, at
from subclass_aot.saved.stand_ins import NodeAt
from subclass_aot.symbols import Number, key_of

_NUMBER = "{node} is a number that depends on data, or no whole number. Compile with dynamic=False"
_EXPONENT = 16
_NO_NUMBERS = "{name} is of sizes, and is given something else"
_FUNCTION = "it runs {target}, which is a function of Python, and no operator"
_CONSTANT = "the constant {name} is no dense tensor with data"
_NO_GRAPH = "{written!r:.80} is no node of a graph"
_OF_SIZES = [function for name, function in FUNCTIONS.items() if name != "getitem"]
_OTHER_SPEC = "{name} is written down as {written}, and the operator gives {found}"
_FAILS = "{name} does not run: {error}"


def encode_graph(module: fx.GraphModule, encoder: Encoder, blobs: list[bytes]) -> Json:
    """A graph as JSON. Checks are left out: they follow from the signature.

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
            target = [encoder.encode(descriptor_of(node)), bool(node.meta.get("is_static_input"))]
        case "get_attr":
            target = _encode_constant(module, str(node.target), encoder, blobs)
        case "output":
            target = [encoder.encode(desc) for desc in descriptor_of(node)]
        case "call_function":
            names = [name for name, function in FUNCTIONS.items() if function is node.target]
            target = names[0] if names else _name_of(node.target)
        case other:
            raise Refused(f"it is a {other}, and no operator")
    val = None if node.op == "output" else encoder.encode(_specs(node.meta.get("val"), node))
    return [node.op, node.name, target, encoder.encode(plain(node.args)), encoder.encode(plain(node.kwargs)), val]


def _name_of(target: object) -> str:
    if not _torch.is_overload(target):
        raise Refused(_FUNCTION.format(target=getattr(target, "__name__", target)))
    return name_of_operator(target)


def _specs(val: object, node: fx.Node) -> Any:
    """What a node stands for, with specs in place of tensors without data."""
    if isinstance(val, MetaTensor):
        return val.spec
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
    return [encoder.encode(spec), tensor.stride(), len(blobs) - 1]


class GraphReader:
    """Makes graphs.

    Args:
        decoder: What reads their values.
        blobs: The data of constants.
        check: Whether each operator is run on tensors without data, and compared with what was written of it.
    """

    def __init__(self, decoder: Decoder, blobs: Sequence[bytes], check: bool) -> None:
        self.decoder = decoder
        self.blobs = blobs
        self.check = check

    def read(self, written: Json, name: str) -> fx.GraphModule:
        """The graph.

        Args:
            written: What `encode_graph` gave.
            name: The name of the class of the module.

        Raises:
            Refused: It is none.
        """
        static, free, listed = _sized(written, 3)
        graph, constants = fx.Graph(), dict[str, torch.Tensor]()
        nodes: list[fx.Node] = []
        for each in _listed(listed):
            parts = _sized(each, 6)
            with at(f"node {parts[1]!s:.80}"):
                if nodes and nodes[-1].op == "output":
                    raise Refused("it stands behind the output")
                nodes.append(self._node(graph, nodes, constants, parts))
        if not nodes or nodes[-1].op != "output":
            raise Refused("there is no output")
        counts = len(graph.find_nodes(op="placeholder")), len(descriptor_of(nodes[-1]))
        for positions, count in zip((static, free), counts, strict=True):
            if not all(type(i) is int and 0 <= i < count for i in _listed(positions)):
                raise Refused(f"{positions!r:.80} are no positions")
        module = _torch.make_graph_module(constants, graph, name)
        module.meta["static_input_indices"] = tuple(static)
        if free:
            module.meta["free_outputs"] = frozenset(free)
        return module

    def _node(
        self, graph: fx.Graph, nodes: list[fx.Node], constants: dict[str, torch.Tensor], written: list[Json]
    ) -> fx.Node:
        op, name, target, args, kwargs, val = written
        if type(name) is not str or not name.isidentifier():
            raise Refused(_NO_GRAPH.format(written=written))
        read = self.decoder.decode
        given = _filled(self.decoder.of(args, tuple), nodes)
        named = _filled(self.decoder.of(kwargs, dict), nodes)
        if not all(type(key) is str and key.isidentifier() for key in named):
            raise Refused(_NO_GRAPH.format(written=written))
        notes: dict[str, Any] = {}
        what: InputDescriptor | tuple[OutputDescriptor, ...] | None = None
        called: Any = name
        match op:
            case "placeholder":
                desc, is_static = _sized(target, 2)
                what = self.decoder.of(desc, InputDescriptor)
                notes["is_static_input"] = self.decoder.of(is_static, bool)
                given = ()
            case "get_attr":
                constants[name] = self._constant(target)
            case "output":
                what = tuple(self.decoder.of(desc, OutputDescriptor) for desc in _listed(target))
                if len(given) != 1 or not isinstance(given[0], tuple | list) or len(given[0]) != len(what):
                    raise Refused("the output has other values than descriptors")
                given = (tuple(given[0]),)
            case "call_function":
                called = FUNCTIONS.get(target) if isinstance(target, str) else None
                called = called or operator_named(target, self.decoder.trust)
            case _:
                raise Refused(_NO_GRAPH.format(written=op))
        node = new_node(graph, op, "output" if op == "output" else called, (), {}, name)
        node.args, node.kwargs = given, named  # which tells the nodes that they have a reader
        if op != "output":
            notes |= _vals(read(val))
            if called in _OF_SIZES:
                _refuse_others(node, notes["val"])
            if self.check and op == "call_function":
                _compare(node, notes.get("val"))
        node.meta = notes
        if what is not None:
            describe(node, what)
        return node

    def _constant(self, written: Json) -> torch.Tensor:
        spec, stride, position = _sized(written, 3)
        spec = self.decoder.of(spec, Spec)
        if type(position) is not int or not 0 <= position < len(self.blobs):
            raise Refused(f"there are no data {position!r:.80}")
        blob = self.blobs[position]
        if len(blob) != math.prod(spec.size) * spec.dtype.itemsize:
            raise Refused(f"the data {position} have another size than {spec}")
        found = torch.empty(spec.size, dtype=spec.dtype)
        if blob:
            found.view(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(blob), dtype=torch.uint8))
        steps = [self.decoder.of(n, int) for n in _listed(stride)]
        if steps != list(found.stride()):
            kept = Spec.make(spec.size, tuple(steps), 0, spec.dtype)
            if len(steps) != len(spec.size) or any(n < 0 for n in steps) or kept.extent > 4 * max(1, found.numel()):
                raise Refused(f"{stride!r:.80} are no strides of {spec}")
            found = torch.empty_strided(kept.size, kept.stride, dtype=spec.dtype).copy_(found)
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
    """Arguments with nodes in their place."""
    if isinstance(value, NodeAt):
        if not 0 <= value.position < len(nodes):
            raise Refused(f"there is no node {value.position} before")
        return nodes[value.position]
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return type(value)(_filled(x, nodes) for x in value)
    if isinstance(value, dict) and type(value) is dict:
        return {key: _filled(x, nodes) for key, x in value.items()}
    return value


def _refuse_others(node: fx.Node, val: object) -> None:
    """Refuses to compute with anything but sizes: a text times a number may be as long as memory.

    Raises:
        Refused: It would.
    """
    given = [x.meta.get("val") if isinstance(x, fx.Node) else x for x in node.args]
    are_sizes = all(type(x) in (int, torch.SymInt) for x in (*given, val))
    is_small = node.target is not operator.pow or type(given[-1]) is int and 0 < given[-1] <= _EXPONENT
    if len(given) != 2 or node.kwargs or not are_sizes or not is_small:
        raise Refused(_NO_NUMBERS.format(name=node.name))


def _compare(node: fx.Node, expected: object) -> None:
    """Runs an operator on tensors without data, and compares what it gives with what was written of it.

    Raises:
        Refused: It cannot run, or gives something else.
    """
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    try:
        with _torch.as_recorded(), meta():
            found = _of(node.target(*args, **kwargs))  # type: ignore[operator]
    except Exception as error:  # of any operator
        pass_on_interruption(error)
        raise Refused(_FAILS.format(name=node.target, error=f"{type(error).__name__}: {error}")) from error
    written = _of(expected)
    if not _alike(found, written):
        raise Refused(_OTHER_SPEC.format(name=node.target, written=written, found=found))


def _alike(found: object, written: object) -> bool:
    if isinstance(found, tuple):
        return isinstance(written, tuple) and len(found) == len(written) and all(map(_alike, found, written))
    if isinstance(found, Spec):
        return (
            isinstance(written, Spec)
            and (found.dtype, found.device, len(found.size)) == (written.dtype, written.device, len(written.size))
            and all(map(_same_number, found.size, written.size))
        )
    if isinstance(found, torch.SymInt) or isinstance(written, torch.SymInt):
        return isinstance(found, int | torch.SymInt) and isinstance(written, int | torch.SymInt) and _same_number(
            found, written
        )  # fmt: skip
    return type(found) is type(written)


def _same_number(one: Number, other: Number) -> bool:
    """Whether two sizes are the same, as far as is known of symbols; nothing more is assumed of them."""
    return key_of(one) == key_of(other) or _torch.statically_known_true(one == other)


def _of(val: object) -> Any:
    if isinstance(val, MetaTensor):
        return val.spec
    return tuple(map(_of, val)) if isinstance(val, tuple | list) else val


def _listed(written: Json) -> list[Json]:
    if type(written) is not list:
        raise Refused(_NO_GRAPH.format(written=written))
    return written


def _sized(written: Json, count: int) -> list[Json]:
    if len(_listed(written)) != count:
        raise Refused(_NO_GRAPH.format(written=written))
    return _listed(written)
