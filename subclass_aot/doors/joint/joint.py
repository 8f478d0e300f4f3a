"""`trace_joint`: from a program to a joint graph whose inputs and outputs have names."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import fx

from subclass_aot.base import _torch
from subclass_aot.doors.joint import messages
from subclass_aot.doors.joint.checked import notes_of, spec_of
from subclass_aot.doors.joint.records import JointInput, JointOutput, leaves_of, records
from subclass_aot.doors.joint.traced_call import TracedCall
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.compilers import Fakes, resolve
from subclass_aot.engine.descriptors import InputDescriptor, OutputDescriptor, describe, descriptor_of
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.sizes import DynamicPolicy
from subclass_aot.engine.tables import Gradients
from subclass_aot.engine.trace import Attempt, JointTrace, specialize, trace_arguments
from subclass_aot.errors import TraceError
from subclass_aot.meta import Spec, new_leaf


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Joint:
    """A traced function: the joint graph of dense tensors, with names for what goes in and comes out.

    It holds no tensor of the call. Passes may change `graph_module` in place; what they may not change, `compile_joint`
    says.

    Attributes:
        graph_module: The graph. Placeholders are named `primals_1 ...` and `tangents_1 ...`: the leaves of parameters
            come first, then those of buffers, of arguments, and last the tangents. Each node has `val`, `spec`,
            `stack_trace` and `partitioner_tag` in its `meta`, and what torch's tracers note: `custom` (the user's
            `torch.fx.traceback.annotate`), `nn_module_stack` and `seq_nr`. Placeholders have AOTAutograd's descriptor
            in `meta["desc"]`, and the output node has one for each output.
        signature: What a call does beside the graph.
        call: What the call was like that was traced.
        ins: What each input was, and its spec.
        outs: What each output was, and its spec.
        vals: The fake tensors of the graph.
        replaced: The names of operators that were replaced while tracing.
    """

    graph_module: fx.GraphModule
    signature: JointSignature
    call: TracedCall
    ins: tuple[tuple[InputDescriptor, Any], ...]
    outs: tuple[tuple[OutputDescriptor, Any], ...]
    vals: Fakes
    replaced: frozenset[str] = frozenset()

    def __reduce__(self) -> Any:
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "vals"}
        return _unpickled, (fields, [notes_of(node) for node in _without_attributes(self.graph_module)])

    def __repr__(self) -> str:
        counts = f"{len(self.ins)} inputs, {len(self.outs)} outputs, {len(self.graph_module.graph.nodes)} nodes"
        return f"<joint graph of {self.call.name}: {counts}>"

    @property
    def inputs(self) -> tuple[JointInput, ...]:
        """The inputs of the graph as it is now, in order.

        >>> import torch, subclass_aot as sa
        >>> layer = torch.nn.Linear(2, 2)
        >>> [given.name for given in sa.trace_joint(layer, torch.ones(1, 2)).inputs]
        ['weight', 'bias', 'args[0]', 'tangent of output[0]']
        """
        return self._records()[0]

    @property
    def outputs(self) -> tuple[JointOutput, ...]:
        """The outputs of the graph as it is now, in order.

        >>> import torch, subclass_aot as sa
        >>> layer = torch.nn.Linear(2, 2)
        >>> [made.name for made in sa.trace_joint(layer, torch.ones(1, 2)).outputs]
        ['output[0]', 'gradient of weight', 'gradient of bias']
        """
        return self._records()[1]

    def __getitem__(self, name: str) -> tuple[JointInput, ...]:
        """Finds the leaves of a parameter, a buffer or an argument by its name.

        Args:
            name: A fully qualified name, `layers.0.weight`, one of several for a tensor that has several; the path of
                an argument, `args[0]['x']`; or the name of one leaf, `layers.0.weight.codes`.

        Returns:
            One input for a dense tensor; for a wrapper, those of all its leaves and symbolic sizes.

        Raises:
            KeyError: There is none; the error names those that are near.
        """
        inputs = self.inputs
        found = tuple(leaves_of(inputs, self.call.names.get(name, name)))
        if not found:
            raise _NoSuchName(messages.NO_SUCH_NAME.format(name=name, near=self._near(name, inputs)))
        return found

    @property
    def parameters(self) -> dict[str, tuple[JointInput, ...]]:
        """The leaves of each parameter, by its fully qualified name."""
        return self._of_kind("parameter")

    @property
    def buffers(self) -> dict[str, tuple[JointInput, ...]]:
        """The leaves of each buffer, by its fully qualified name."""
        return self._of_kind("buffer")

    def gradients_of(self, name: str) -> tuple[JointOutput, ...]:
        """Finds the gradient of a parameter or an argument: all its leaves, none where it has no gradient.

        Args:
            name: As for `joint[name]`.

        Raises:
            KeyError: There is no such input.
        """
        of = self[name][0].of
        return tuple(made for made in self.outputs if made.kind == "gradient" and made.of == of)

    def example_inputs(self) -> list[Any]:
        """Returns for each input of the graph a tensor without data, or a symbolic number."""
        return [new_leaf(spec) if isinstance(spec, Spec) else spec for _, spec in self.ins]

    def fake_inputs(self) -> list[Any]:
        """Returns for each input of the graph a torch `FakeTensor`, with the symbols of the trace; all of one mode."""
        return list(self.vals.inputs)

    @contextmanager
    def fakes(self) -> Iterator[None]:
        """Runs the block so that torch finds the mode of the fake tensors in `meta["val"]`, as a pass may that has
        none of them at hand. Autocast is off: what a pass runs again was cast when it was recorded.
        """
        with _torch.switches.disable_autocast(), _torch.aotautograd.within_tracing(self.vals.mode):
            yield

    def with_graph_module(self, graph_module: fx.GraphModule) -> Joint:
        """Returns the same with another graph, for passes that make one and leave this as it is.

        Args:
            graph_module: A graph with these inputs and outputs.
        """
        return dataclasses.replace(self, graph_module=graph_module)

    @property
    def num_forward_outputs(self) -> int:
        """How many outputs of the graph forward computes; those of backward come after them."""
        return sum(not desc.is_backward for desc, _ in self.outs)

    @property
    def call_order(self) -> tuple[str, ...]:
        """The names of the tensors that what `compile_joint` gives is called with, in order."""
        return self.call.order

    def _records(self) -> tuple[tuple[JointInput, ...], tuple[JointOutput, ...]]:
        return records(self.graph_module.graph, [desc for desc, _ in self.ins], [desc for desc, _ in self.outs])

    def _of_kind(self, kind: str) -> dict[str, tuple[JointInput, ...]]:
        inputs = self.inputs
        names = dict.fromkeys(given.of for given in inputs if given.kind == kind)
        return {name: tuple(leaves_of(inputs, name)) for name in names}

    def _near(self, name: str, inputs: tuple[JointInput, ...]) -> str:
        """Returns names like one that there is not: below it, or spelled nearly so."""
        names = list(dict.fromkeys(given.of for given in inputs if given.kind not in ("tangent", "live")))
        below = [x for x in names if x.startswith((f"{name}.", f"{name}["))]
        every = list(dict.fromkeys([*names, *(x for x in self.call.names if not x.startswith("self."))]))
        near = below or difflib.get_close_matches(name, every, n=5, cutoff=0.5) or names
        return ", ".join(near[:5]) + (", ..." if len(near) > 5 else "")


def _unpickled(fields: Mapping[str, Any], notes: Sequence[dict[str, Any]]) -> Joint:
    """Returns the inverse of `Joint.__reduce__`. What pickle makes of a graph has nothing in `meta`."""
    inputs = [new_leaf(spec) if isinstance(spec, Spec) else spec for _, spec in fields["ins"]]
    joint = Joint(**fields, vals=Fakes(fields["graph_module"], inputs))
    for node, noted in zip(_without_attributes(joint.graph_module), notes, strict=True):
        node.meta.update(noted)
    graph = joint.graph_module.graph
    for node, (desc, _) in zip(graph.find_nodes(op="placeholder"), joint.ins, strict=True):
        describe(node, desc)
    describe(graph.output_node(), tuple(desc for desc, _ in joint.outs))
    return joint


def _without_attributes(graph_module: fx.GraphModule) -> list[fx.Node]:
    """Returns the nodes in order, without those that read attributes: fx puts these elsewhere when it loads a graph."""
    return [node for node in graph_module.graph.nodes if node.op != "get_attr"]


class _NoSuchName(KeyError):
    """A `KeyError` that prints its text as it is."""

    def __str__(self) -> str:
        return str(self.args[0])


def trace_joint(
    fn: Callable[..., Any],
    *args: Any,
    dynamic: bool | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | str | None = None,
    **kwargs: Any,
) -> Joint:
    """Traces a function or module, forward and backward, to one graph of dense tensors whose inputs have names.

    The function runs on tensors without data; nothing of the user's is changed. It runs once, and again only where it
    turns out that the trace needs other options, as in Note [Views of one tensor].

    Args:
        fn: A function or module.
        *args: Its arguments: any structure of tensors, wrappers, modules and Python values.
        dynamic: Which sizes are symbols: `None` those that `mark_dynamic` names, `True` all but those of parameters and
            buffers, `False` none.
        decompositions: Operators to replace while tracing, as in AOTAutograd: operator to function. Or the name of a
            compiler, `"inductor"`: those that it wants decomposed.
        **kwargs: Its keyword arguments.

    Returns:
        The joint graph, its inputs and outputs by name, and its signature.

    Raises:
        TraceError: The program cannot be traced; the message names the operator and the user's line.

    >>> import torch
    >>> joint = trace_joint(lambda x: (x.sin() * 2).sum(), torch.ones(3, requires_grad=True))
    >>> [n.name for n in joint.graph_module.graph.nodes if n.op == "placeholder"]
    ['primals_1', 'tangents_1']
    >>> joint["args[0]"][0].gradient
    <gradient gradient of args[0]: mul_2>
    """
    if _torch.dispatch.inside_transform():
        raise TraceError(messages.TRANSFORMED)
    replaced = resolve(decompositions).decompositions() if isinstance(decompositions, str) else decompositions or {}

    def begin(with_grad: Gradients, failure: BaseException | None) -> Attempt | None:
        if failure is not None:
            return None
        arguments = Arguments.of(fn, args, kwargs, with_grad).parameters_first()
        return Attempt(arguments, DynamicPolicy(dynamic).next(arguments))

    def build(attempt: Attempt) -> Joint:
        trace = trace_arguments(fn, attempt, replaced)
        return _joint(fn, attempt.arguments, trace, frozenset(map(str, replaced)))

    with _torch.plain_subclasses.classes_see("nothing"):
        return specialize(begin, build)


def _joint(fn: Callable[..., Any], arguments: Arguments, trace: JointTrace, replaced: frozenset[str]) -> Joint:
    output = trace.graph_module.graph.output_node()
    values: Any = output.args[0]
    specs = tuple(spec_of(node) if isinstance(node, fx.Node) else node for node in values)
    inputs = trace.graph_module.graph.find_nodes(op="placeholder")
    return Joint(
        graph_module=trace.graph_module,
        signature=trace.signature,
        call=TracedCall.of(fn, arguments, trace.signature),
        ins=tuple((descriptor_of(node), spec_of(node)) for node in inputs),
        outs=tuple(zip(descriptor_of(output), specs, strict=True)),
        vals=Fakes(trace.graph_module),
        replaced=replaced,
    )
