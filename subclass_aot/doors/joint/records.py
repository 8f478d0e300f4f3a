"""The inputs and outputs of a joint graph by name: what a pass looks for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import fx

from subclass_aot.engine.descriptors import (
    AutogradMutation,
    BackwardMutation,
    BufferInput,
    Descriptor,
    Gradient,
    HeldInput,
    Inner,
    InnerSize,
    InnerStride,
    InputDescriptor,
    IntermediateBase,
    LiveInput,
    LookedAt,
    MutatedInput,
    Number,
    OutputDescriptor,
    ParamInput,
    PlainInput,
    PlainOutput,
    PutByBackward,
    SyntheticBase,
    Tangent,
    ViewBase,
)

InputKind = Literal["parameter", "buffer", "argument", "held", "base", "tangent", "live", "size", "stride"]
OutputKind = Literal["output", "mutation", "gradient", "base", "number", "value", "object", "size", "stride"]

_KINDS: dict[type[Descriptor], str] = {
    ParamInput: "parameter",
    BufferInput: "buffer",
    PlainInput: "argument",
    HeldInput: "held",
    ViewBase: "base",
    SyntheticBase: "base",
    Tangent: "tangent",
    LiveInput: "live",
    InnerSize: "size",
    InnerStride: "stride",
    PlainOutput: "output",
    MutatedInput: "mutation",
    AutogradMutation: "mutation",
    BackwardMutation: "mutation",
    Gradient: "gradient",
    PutByBackward: "object",
    IntermediateBase: "base",
    Number: "number",
    LookedAt: "value",
}


@dataclass(frozen=True, eq=False)
class JointInput:
    """An input of a joint graph: one dense tensor, or a symbolic number.

    Attributes:
        name: Its name: `layers.0.weight.codes`, `args[0]`, `tangent of output[0]`.
        kind: `"parameter"`, `"buffer"`, `"argument"`, `"held"` (an object of the call holds it), `"base"` (what inputs
            are views of, or a storage that they share), `"tangent"`, `"live"` (an input as it is when backward runs),
            or `"size"` and `"stride"` for a symbolic one of a wrapper.
        of: The tensor of the call that it belongs to: the fully qualified name of a parameter or buffer,
            `layers.0.weight`; the path of an argument, `args[0]['x']`; of a tangent, the result: `output[0]`.
        path: Where it is in that tensor, if that is a wrapper: `.codes`, else empty.
        node: Its placeholder.
        descriptor: What it is, as data.
        gradient: The output that is its gradient, or None. The gradient of a wrapper may be of another class, with
            leaves at other paths: `Joint.gradients_of` gives these.
        output: Of a tangent, the output whose gradient it is, if that is an output of the graph; else None.
    """

    name: str
    kind: InputKind
    of: str
    path: str
    node: fx.Node
    descriptor: InputDescriptor
    gradient: JointOutput | None = None
    output: JointOutput | None = None

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {self.node.name}>"


@dataclass(frozen=True, eq=False)
class JointOutput:
    """An output of a joint graph: one dense tensor, or a number.

    Attributes:
        name: Its name: `output[0].codes`, `gradient of layers.0.weight.codes`, `new value of running_mean`.
        kind: `"output"`, `"mutation"` (the new value of an input), `"gradient"`, `"base"` (what several results are
            views of), `"number"` (one that the call needs), `"value"` (one that the program read), `"object"`
            (what hooks put into an object), or `"size"` and `"stride"` for a symbolic one of a wrapper.
        of: What it belongs to: `output[0]`, or the input that it is the gradient or the new value of.
        path: Where it is in that tensor, if that is a wrapper: `.codes`, else empty.
        node: The node that computes it; a number that is known, or None for a gradient that is zero, as it is.
        descriptor: What it is, as data.
        is_backward: Whether backward computes it.
        input: The input that it is the gradient or the new value of, if there is one at the same path; else None.
        tangent: Of a result, the tangent at the same path, if a gradient comes in there; else None.
    """

    name: str
    kind: OutputKind
    of: str
    path: str
    node: Any
    descriptor: OutputDescriptor
    is_backward: bool
    input: JointInput | None = field(default=None, repr=False)
    tangent: JointInput | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name}: {getattr(self.node, 'name', self.node)}>"


def records(
    graph: fx.Graph, inputs: Sequence[InputDescriptor], outputs: Sequence[OutputDescriptor]
) -> tuple[tuple[JointInput, ...], tuple[JointOutput, ...]]:
    """Reads the inputs and outputs of a graph as it is now.

    Args:
        graph: The graph.
        inputs: What its inputs are.
        outputs: What its outputs are.
    """
    values: Any = graph.output_node().args[0]
    made = {desc: _output(desc, node) for desc, node in zip(outputs, values, strict=True)}
    gradients = {desc: out for out in made.values() if (desc := _without(Gradient, "grad_of", out.descriptor))}
    results = {desc: out for desc, out in made.items() if out.kind in ("output", "base", "mutation")}
    found: dict[Descriptor, JointInput] = {}
    for desc, node in zip(inputs, graph.find_nodes(op="placeholder"), strict=True):
        result = _without(Tangent, "output", desc)
        output = None if result is None else results.get(result)
        kind, of, path, name = _words(desc)
        given = JointInput(name, kind, of, path, node, desc, gradients.get(desc), output)
        found[desc] = given
        if output is not None:
            object.__setattr__(output, "tangent", given)
    for out in made.values():
        object.__setattr__(out, "input", found.get(_input_of(out.descriptor)))
    return tuple(found.values()), tuple(made.values())


def tensor_of(desc: InputDescriptor) -> str:
    """Returns the name of the tensor of the call that an input belongs to."""
    return _words(desc).of


def name_of(desc: Descriptor) -> str:
    """Returns the name of an input or output."""
    return _words(desc).name


class _Words(NamedTuple):
    """The words for an input or output."""

    kind: Any
    of: str
    path: str
    name: str


def _output(desc: OutputDescriptor, node: object) -> JointOutput:
    kind, of, path, name = _words(desc)
    return JointOutput(name, kind, of, path, node, desc, desc.is_backward)


def _words(desc: Descriptor) -> _Words:
    path, part = "", None
    while isinstance(desc, Inner | InnerSize | InnerStride):
        if isinstance(desc, Inner):
            path = (desc.attr if desc.attr.startswith("[") else f".{desc.attr}") + path
        else:
            part = _KINDS[type(desc)]
            path = f".{part}({desc.dim})"
        desc = desc.base
    kind = _KINDS.get(type(desc), "value")
    of = desc.target if isinstance(desc, ParamInput | BufferInput) else str(desc)
    for attribute in ("input", "grad_of", "output"):
        about = getattr(desc, attribute, None)
        if isinstance(about, Descriptor):
            of, path = _words(about).of, _words(about).path + path
    name = _NAMES.get(kind, "{}").format(of + path)
    return _Words(part or kind, of, path, name)


_NAMES = {
    "tangent": "tangent of {}",
    "gradient": "gradient of {}",
    "mutation": "new value of {}",
    "live": "{} when backward runs",
}


def _without(kind: type[Descriptor], attribute: str, desc: Descriptor) -> Any:
    """Takes `Gradient` or `Tangent` out of a descriptor: what is at the same path of that; None if it has none."""
    if isinstance(desc, Inner):
        base = _without(kind, attribute, desc.base)
        return None if base is None else Inner(base, desc.attr)
    return getattr(desc, attribute) if isinstance(desc, kind) else None


def _input_of(desc: Descriptor) -> Any:
    """Returns the descriptor of the input at the same path that an output is the gradient or the new value of."""
    for kind in (Gradient, MutatedInput, AutogradMutation, BackwardMutation):
        found = _without(kind, "grad_of" if kind is Gradient else "input", desc)
        if found is not None:
            return found
    return None


def leaves_of(inputs: Sequence[JointInput], name: str) -> Iterator[JointInput]:
    """Yields the inputs that belong to a tensor of the call, tangents left out."""
    for given in inputs:
        if given.kind not in ("tangent", "live") and name in (given.of, given.name):
            yield given
