"""Descriptors: each says what one input or one output of a graph is.

Every placeholder of a joint, forward or backward graph has a descriptor, and the output node has a tuple of them, one
for each output in order: `descriptor_of(node)` gives them. They are equal if they describe the same thing, and print as
an expression. The words are those of AOTAutograd's own descriptors; `to_torch` gives these, and they stand in
`node.meta["desc"]`, where what was written for AOTAutograd's graphs looks for them.

>>> weight = ParamInput("self.linear.weight", "linear.weight")
>>> print(Gradient(Inner(weight, "codes")))
gradient of self.linear.weight.codes
>>> Tangent(PlainOutput(0)) == Tangent(PlainOutput(0))
True
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from subclass_aot.base import _torch

_KEY, _KEY_OF_TORCH = "descriptor", "desc"


class Descriptor:
    """The meaning of an input or an output of a graph."""

    __slots__ = ()

    def to_torch(self) -> Any:
        """Returns AOTAutograd's descriptor of the same; what it has no word for is a `DummyAOTInput` or
        `DummyAOTOutput`.
        """
        raise NotImplementedError


class InputDescriptor(Descriptor):
    """The meaning of an input of a graph."""

    __slots__ = ()


class OutputDescriptor(Descriptor):
    """The meaning of an output of a graph.

    Attributes:
        is_backward: Whether backward computes it.
    """

    __slots__ = ()
    is_backward = False


@dataclass(frozen=True, slots=True)
class PlainInput(InputDescriptor):
    """A tensor among the arguments of a call.

    Attributes:
        path: Where the user finds it: `args[0]`, `args[1]['mask']`.
        index: Its position among the flat arguments.
    """

    path: str
    index: int

    def __str__(self) -> str:
        return self.path

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().PlainAOTInput(self.index)


@dataclass(frozen=True, slots=True)
class HeldInput(InputDescriptor):
    """A tensor that an object of the call holds, such as a cache or an optimizer.

    Attributes:
        path: Where the user finds it: `args[1].hidden`. Several may have one path: those at keys that are tensors.
        number: What distinguishes it from these.
    """

    path: str
    number: int

    def __str__(self) -> str:
        return self.path

    def to_torch(self) -> Any:
        return _torch.aotautograd.held_input(self.path, self.number)


@dataclass(frozen=True, slots=True)
class ParamInput(InputDescriptor):
    """A parameter of a module.

    Attributes:
        path: Where the user finds it: `self.head.weight`, `args[0].head.weight`.
        target: Its name in the module that was compiled, or in the argument: `head.weight`.
    """

    path: str
    target: str

    def __str__(self) -> str:
        return self.path

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().ParamAOTInput(self.target)


@dataclass(frozen=True, slots=True)
class BufferInput(InputDescriptor):
    """A buffer of a module. The attributes are those of `ParamInput`."""

    path: str
    target: str

    def __str__(self) -> str:
        return self.path

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().BufferAOTInput(self.target)


@dataclass(frozen=True, slots=True)
class ViewBase(InputDescriptor):
    """The tensor of which an input is a view, and that is no input itself."""

    base_of: InputDescriptor

    def __str__(self) -> str:
        return f"{self.base_of}.{_torch.autograd.BASE}"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().ViewBaseAOTInput(self.base_of.to_torch())


@dataclass(frozen=True, slots=True)
class SyntheticBase(InputDescriptor):
    """A flat storage that several inputs share, and that the graph writes."""

    base_of: tuple[InputDescriptor, ...]

    def __str__(self) -> str:
        return f"the storage of {' and '.join(map(str, self.base_of))}"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().SyntheticBaseAOTInput(self.base_of[0].to_torch())


@dataclass(frozen=True, slots=True)
class Tangent(InputDescriptor):
    """The gradient of an output, which comes into backward."""

    output: OutputDescriptor

    def __str__(self) -> str:
        return f"tangent of {self.output}"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().TangentAOTInput(self.output.to_torch())


@dataclass(frozen=True, slots=True)
class LiveInput(InputDescriptor):
    """An input that backward writes, as it is when backward runs."""

    input: InputDescriptor

    def __str__(self) -> str:
        return f"{self.input} when backward runs"

    def to_torch(self) -> Any:
        return _torch.aotautograd.live_input(self.input.to_torch())


@dataclass(frozen=True, slots=True)
class _Part(InputDescriptor, OutputDescriptor):
    """A part of a wrapper: of an input or of an output, and computed by forward or backward, as that is."""

    base: Descriptor

    @property
    def is_backward(self) -> bool:  # type: ignore[override]
        """Whether backward computes it."""
        return getattr(self.base, "is_backward", False)


@dataclass(frozen=True, slots=True)
class Inner(_Part):
    """An inner tensor of a wrapper.

    Attributes:
        base: What the wrapper is.
        attr: The name of the attribute, `codes`; of an element of a container, `[0]`.
    """

    attr: str

    def __str__(self) -> str:
        return f"{self.base}{self.attr}" if self.attr.startswith("[") else f"{self.base}.{self.attr}"

    def to_torch(self) -> Any:
        return _torch_of_part("GetAttr", self.base, self.attr)


@dataclass(frozen=True, slots=True)
class InnerSize(_Part):
    """A symbolic size of a wrapper."""

    dim: int

    def __str__(self) -> str:
        return f"{self.base}.size({self.dim})"

    def to_torch(self) -> Any:
        return _torch_of_part("Size", self.base, self.dim)


@dataclass(frozen=True, slots=True)
class InnerStride(_Part):
    """A symbolic stride of a wrapper."""

    dim: int

    def __str__(self) -> str:
        return f"{self.base}.stride({self.dim})"

    def to_torch(self) -> Any:
        return _torch_of_part("Stride", self.base, self.dim)


@dataclass(frozen=True, slots=True)
class PlainOutput(OutputDescriptor):
    """A flat result, by its position."""

    index: int

    def __str__(self) -> str:
        return f"output[{self.index}]"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().PlainAOTOutput(self.index)


@dataclass(frozen=True, slots=True)
class _Written(OutputDescriptor):
    """The new value of an input."""

    input: InputDescriptor

    def __str__(self) -> str:
        return f"new value of {self.input}"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().InputMutationAOTOutput(self.input.to_torch())


class MutatedInput(_Written):
    """The new value of an input: of a dense leaf or a base that the graph writes at its end."""

    __slots__ = ()


class AutogradMutation(_Written):
    """The new value of an input of which autograd must see the write, which is done outside of the graph."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{_Written.__str__(self)}, seen by autograd"


class BackwardMutation(_Written):
    """The new value of an input that backward writes."""

    __slots__ = ()
    is_backward = True

    def __str__(self) -> str:
        return f"{_Written.__str__(self)} after backward"


@dataclass(frozen=True, slots=True)
class PutByBackward(OutputDescriptor):
    """A value that a hook puts into an object while gradients are computed, by its position among these."""

    index: int
    is_backward = True

    def __str__(self) -> str:
        return f"put into an object by backward {self.index}"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().DummyAOTOutput(self.index)


@dataclass(frozen=True, slots=True)
class IntermediateBase(OutputDescriptor):
    """A tensor that is no result, and of which several results are views.

    Attributes:
        index: Its position among those.
        base_of: The first of the results.
    """

    index: int
    base_of: OutputDescriptor

    def __str__(self) -> str:
        return f"the tensor that {self.base_of} and others are views of"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().IntermediateBaseAOTOutput(self.base_of.to_torch())


@dataclass(frozen=True, slots=True)
class Gradient(OutputDescriptor):
    """The gradient of an input, or of a result that is a leaf of autograd's graph which the function makes.

    Attributes:
        grad_of: What has it.
        part: The part of backward that computes it, if there are several: see Note [Parts of backward].
    """

    grad_of: InputDescriptor | PlainOutput | IntermediateBase
    part: int = 0
    is_backward = True

    def __str__(self) -> str:
        return f"gradient of {self.grad_of}" + f" in part {self.part} of backward" * bool(self.part)

    def to_torch(self) -> Any:
        if isinstance(self.grad_of, PlainOutput | IntermediateBase):
            return _torch.aotautograd.descriptors().DummyAOTOutput(self.grad_of.index)
        return _torch.aotautograd.descriptors().GradAOTOutput(self.grad_of.to_torch())


@dataclass(frozen=True, slots=True)
class SavedForBackward(InputDescriptor, OutputDescriptor):
    """A value that forward gives to backward.

    Attributes:
        index: Its position among what is saved: tensors, then symbolic numbers.
        what: The input or output of forward that it is, too, or None.
    """

    index: int
    what: Descriptor | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"saved for backward {self.index}" if self.what is None else f"{self.what}, saved for backward"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().SavedForBackwardsAOTOutput(self.index)


@dataclass(frozen=True, slots=True)
class Number(OutputDescriptor):
    """A symbolic number that the call needs, for a runtime assert or for a size outside of the graph."""

    number: Hashable
    index: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"number {self.number}"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().DummyAOTOutput(self.index)


@dataclass(frozen=True, slots=True)
class LookedAt(OutputDescriptor):
    """A value that the program read, by its position among these; the call checks it."""

    index: int

    def __str__(self) -> str:
        return f"value read {self.index}"

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().DummyAOTOutput(self.index)


@dataclass(frozen=True, slots=True)
class Intermediate(InputDescriptor, OutputDescriptor):
    """A value that one part of a graph gives to another, where the graph is compiled or partitioned in parts.

    Attributes:
        name: The name of its node, or what it is.
    """

    name: str

    def __str__(self) -> str:
        return self.name

    def to_torch(self) -> Any:
        return _torch.aotautograd.descriptors().DummyAOTOutput(0)


def _torch_of_part(what: str, base: Descriptor, part: str | int) -> Any:
    of_base = base.to_torch()  # once: a base is a part of another in turn, and asking twice doubles at each level
    kind = "Input" if isinstance(of_base, _torch.aotautograd.descriptors().AOTInput) else "Output"
    return getattr(_torch.aotautograd.descriptors(), f"Subclass{what}AOT{kind}")(of_base, part)


def describe(node: fx.Node, what: Descriptor | tuple[Descriptor, ...]) -> None:
    """Says of a placeholder what it is, or of an output node what each output is: here and in AOTAutograd's own words.

    Args:
        node: The node.
        what: Its descriptor, or a tuple of descriptors.
    """
    node.meta[_KEY] = what
    node.meta[_KEY_OF_TORCH] = tuple(x.to_torch() for x in what) if isinstance(what, tuple) else what.to_torch()


def descriptor_of(node: fx.Node) -> Any:
    """Returns the descriptor of a placeholder, or the tuple of those of an output node; None where there is none.

    >>> import torch, subclass_aot as sa
    >>> graph = sa.trace_joint(torch.sin, torch.ones(3, requires_grad=True)).graph_module.graph
    >>> [str(descriptor_of(node)) for node in graph.find_nodes(op="placeholder")]
    ['args[0]', 'tangent of output[0]']
    """
    return node.meta.get(_KEY)


def outermost(desc: Descriptor) -> Descriptor:
    """Returns what a descriptor says of the whole, without the parts of a wrapper."""
    while isinstance(desc, _Part):
        desc = desc.base
    return desc


def undescribed(meta: dict[str, Any], *others: str) -> dict[str, Any]:
    """Returns the `meta` of a node without what says that it is an input, and without `others`, which are not read."""
    left_out = {_KEY, _KEY_OF_TORCH, *others}
    return {key: meta[key] for key in meta if key not in left_out}


def describe_last(node: fx.Node, joint: fx.Node, count: int) -> None:
    """Says of an output node that its outputs are the last ones of another, where these have descriptors.

    Args:
        node: The output node.
        joint: The other one. It may be AOTAutograd's, and has none in some versions.
        count: How many.
    """
    for key in (_KEY, _KEY_OF_TORCH):
        if key in joint.meta:
            node.meta[key] = tuple(joint.meta[key][len(joint.meta[key]) - count :])
