"""The generated function that takes tangents apart, runs the backward graph and wraps gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import torch

from subclass_aot.base import _torch
from subclass_aot.base.codegen import Source
from subclass_aot.engine.compilers import BoxedFunction
from subclass_aot.engine.descriptors import (
    BackwardMutation,
    Number,
    OutputDescriptor,
    Tangent,
    descriptor_of,
    outermost,
)
from subclass_aot.engine.outcome import BackwardOutcome, emit_finish
from subclass_aot.engine.outputs import ComputedSymints, Constant, InputLeaf, SameAsOutput, Value
from subclass_aot.engine.runtime import tangent_coercion
from subclass_aot.engine.runtime.calling_convention import Convention, SymintNames, emit_run
from subclass_aot.engine.runtime.expanded_tangents import is_taken_expanded
from subclass_aot.engine.runtime.graphs import Graphs
from subclass_aot.engine.runtime.lazy import LazyFunction
from subclass_aot.engine.runtime.once import without_way_back
from subclass_aot.engine.runtime.unexpected_tangents import UnexpectedTangents
from subclass_aot.engine.signature import JointSignature, TangentSpec
from subclass_aot.kit.flatten import PlainTensorMeta, SubclassCreationMeta, ValueMeta, emit_unwrap, emit_wrap
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import is_symbolic


def write_backward(
    convention: Convention, graph: BoxedFunction, others: UnexpectedTangents | None = None
) -> Callable[..., Any]:
    """Generates `backward(ctx, *tangents)`.

    Args:
        convention: What the functions agree on.
        graph: The backward graph, compiled.
        others: What to do with gradients of other kinds than the graph is for; None if there are no others.
    """
    return _Writer(convention, graph).write(others)


class _Writer:
    """Writes the lines of one backward, in their order."""

    def __init__(self, convention: Convention, graph: BoxedFunction) -> None:
        self.convention, self.graph = convention, graph
        self.signature, self.graphs = convention.signature, convention.graphs
        self.names = [f"tangent_{i}" for i in range(len(self.signature.tangents))]
        params = ", ".join(["ctx", *self.names])
        self.source = Source("backward", params, "Unwraps tangents, runs the backward graph, wraps gradients.")
        self.sizes = [self.source.fresh(f"size_{i}") for i in range(self.graphs.num_saved_symints)]
        numbers = [desc for desc in self.graphs.computed if isinstance(desc, Number)]
        self.symints = SymintNames.of({desc: self.source.fresh(str(desc)) for desc in numbers})
        self.computed: dict[OutputDescriptor, str] = {}
        self.structure: dict[int, str] = {}

    def write(self, others: UnexpectedTangents | None) -> Callable[..., Any]:
        """Appends all of it."""
        put, present = self.signature.backward_outcome, None
        self.start()
        if put is not None:
            self.source.line("for_backward = ctx.objects")
            present = self.present(put) if put.expected else None
        if others is not None:
            self.hand_over(others, present)
        self.run(self.read_inputs())
        results = ["None"] * len(self.convention.parameters) + self.gradients()
        if put is not None:
            made = self.put(put)
            emit_finish(self.source, put.outcome, [], made)
            for kept, output in put.retained:
                retain = self.source.const(_retain, "retain")
                self.source.line(f"{retain}(for_backward, {kept}, {made[output]})")
        self.source.line(f"return ({', '.join(results)},)")
        return self.source.build()

    def start(self) -> None:
        """Appends what ends a backward that has nothing to do or must not be, and reads sizes."""
        source, convention = self.source, self.convention
        nothing = ", ".join(["None"] * (len(convention.parameters) + len(convention.requires_grad_inputs)))
        missing = " and ".join(f"{name} is None" for name in self.names)
        source.line(f"if {missing}: return ({nothing},)  # autograd passes by, on its way to something else")
        for name, tangent in zip(self.names, self.signature.tangents, strict=True):
            if tangent.error is not None:
                fail = source.const(functools.partial(_fail, tangent.error), "fail")
                source.line(f"if {name} is not None: {fail}()")
        sizes = (*self.sizes, *self.symints.names.values())
        if sizes:
            source.line(f"({''.join(n + ', ' for n in sizes)}) = ctx.sizes")

    def read_inputs(self) -> list[str]:
        """Appends the list of the graph's inputs, so that saved tensors and zeros can be freed; returns the locals of
        live inputs.
        """
        source = self.source
        saved = [source.fresh(f"saved_{i}") for i in range(len(self.graphs.saved))]
        ignored = [source.fresh("checked") for _ in self.convention.checked]
        if saved or ignored:
            source.line(f"({''.join(n + ', ' for n in saved + ignored)}) = ctx.saved_tensors")
            if ignored:
                source.line(f"del {', '.join(ignored)}")
        tangents = self.tangents()
        live = [source.fresh("live") for _ in self.signature.mutations.in_backward]
        if live:
            source.line(f"({', '.join(live)},) = ctx.live")
        source.line(f"inputs = [{', '.join(self.sizes + saved + tangents + live)}]")
        if saved or tangents:
            source.line(f"del {', '.join(saved + tangents)}")
        if saved or ignored:
            if isinstance(self.graph, LazyFunction):  # where compiling fails, nothing is lost
                lazy = source.const(self.graph, "backward_graph")
                source.line(f"if not {lazy}.is_compiled: {lazy}.compiled()")
            source.line(f"ctx.{_torch.autograd.CLEAR_SAVED}()  # the graph releases each when it has been read")
        return live

    def run(self, live: Sequence[str]) -> None:
        """Appends what runs the graph, and writes what it computed into live inputs."""
        assert self.graphs.backward is not None
        for desc in descriptor_of(self.graphs.backward.graph.output_node()):
            self.computed[desc] = self.source.fresh(str(desc))
        emit_run(self.source, list(self.computed.values()), self.graph, "inputs", "backward")
        written = [name for desc, name in self.computed.items() if isinstance(desc, BackwardMutation)]
        for target, value in zip(live, written, strict=True):
            self.source.line(f"{target}.copy_({value})")

    def gradients(self) -> list[str]:
        """Appends what makes the gradients; returns an expression of each."""
        source, results = self.source, []
        self.structure = {slot: source.fresh("structure") for slot in self.convention.structure}
        if self.structure:
            source.line(f"({', '.join(self.structure.values())},) = ctx.structure")
        for i in self.convention.requires_grad_inputs:
            wanted = self.signature.gradient_targets[i]
            reach = [self.names[k] for k in wanted.reach]
            if wanted.gradient is None:
                results.append("None")
            elif len(reach) == len(self.names):
                results.append(self.wrap(wanted.gradient))
            else:
                results.append(source.fresh("gradient"))  # see Note [Reach]
                with source.block(f"if {' and '.join(f'{name} is None' for name in reach)}:"):
                    source.line(f"{results[-1]} = None")
                with source.block("else:"):
                    source.line(f"{results[-1]} = {self.wrap(wanted.gradient)}")
        return results

    def wrap(self, value: Value) -> str:
        """Appends what makes a tensor of what was computed; returns an expression of it."""
        leaves = []
        for x in value.leaves:
            if isinstance(x, InputLeaf):
                leaves.append(self.structure[x.slot])
            else:
                leaves.append(self.computed[x] if isinstance(x, OutputDescriptor) else self.source.const(x, "opaque"))
        return emit_wrap(self.source, value.meta, leaves)

    def present(self, put: BackwardOutcome) -> str:
        """Appends what compares objects with what backward expects in them; returns the local of what is there
        instead.
        """
        numbers = [
            self.symints.names[output.parts[0].number]
            if isinstance(output, ComputedSymints) and not output.is_size and isinstance(output.parts[0], Number)
            else "0"
            for output in put.outputs
        ]
        name, compare = self.source.fresh("present"), self.source.const(put.present, "present")
        self.source.line(f"{name} = {compare}(for_backward, ({''.join(n + ', ' for n in numbers)}))")
        return name

    def put(self, put: BackwardOutcome) -> list[str]:
        """Appends what makes the tensors and numbers that hooks put into objects; returns an expression of each."""
        made: list[str] = []
        for output in put.outputs:
            match output:
                case Value():
                    value = self.wrap(output)
                    lost = self.source.const(without_way_back, "without_way_back") if output.requires_grad else ""
                    made.append(f"{lost}({value})" if output.requires_grad else value)
                case SameAsOutput():
                    made.append(made[output.output])
                case ComputedSymints():
                    names = self.symints.names
                    parts = [names[p.number] if isinstance(p, Number) else str(p) for p in output.parts]
                    size = self.source.const(torch.Size, "Size") if output.is_size else ""
                    made.append(f"{size}(({', '.join(parts)},))" if output.is_size else parts[0])
                case Constant():
                    made.append(self.source.const(output.value, "constant"))
        return made

    def hand_over(self, others: UnexpectedTangents, present: str | None) -> None:
        """Appends what hands gradients over to `others`: of another kind, or where objects hold something else by now.

        Args:
            others: What to do then.
            present: The local of what objects hold that is not what was expected, if they are compared.
        """
        convention = self.convention

        def write_other(signature: JointSignature, graphs: Graphs, backward: BoxedFunction) -> Callable[..., Any]:
            """Returns the backward for other tangents, after the same forward."""
            return write_backward(
                Convention(
                    signature,
                    graphs,
                    convention.keeps_inputs,
                    convention.requires_grad_inputs,
                    convention.keeps_objects,
                ),
                backward,
            )

        names, tangents = self.names, self.signature.tangents
        wrong = [self.wrong(n, t.meta, t.specs) for n, t in zip(names, tangents, strict=True)]
        if len(names) > 1:  # autograd does not go backward for nothing at all
            wrong += [f"{names[i]} is None" for i in others.needed]
        take = self.source.const(
            functools.partial(others.take, write_other, [str(tangent.output) for tangent in tangents]), "other_kind"
        )
        if present is not None:
            wrong.append(f"{present} is not None")
        with self.source.block(f"if {' or '.join(wrong)}:"):
            self.source.line(f"run, {', '.join(names)} = {take}({present}, {', '.join(names)})")
            self.source.line(f"if run is not None: return run(ctx, {', '.join(names)})")

    def wrong(self, name: str, meta: ValueMeta, specs: Sequence[Any]) -> str:
        """Returns the condition that a gradient is not of the kind that was traced."""
        if not isinstance(meta, SubclassCreationMeta):
            return f"hasattr({name}, '__tensor_flatten__')"
        source = self.source
        if meta.context is None and all(isinstance(x, PlainTensorMeta) for x in meta.attrs.values()):
            cls, dense = source.const(meta.cls, meta.cls.__name__), source.const(torch.Tensor, "Tensor")
            wrong = [f"type({name}) is not {cls}"]
            for a, spec in zip(meta.attrs, specs, strict=False):  # sizes and strides of the wrapper may follow
                if spec is None:  # a part of the structure, which is that of the result, whatever came
                    continue
                size, dtype = self.symints.all(spec.size), source.const(spec.dtype, "dtype")
                wrong.append(f"type({name}.{a}) is not {dense}")
                wrong.append(f"{name}.{a}.size() != {size} or {name}.{a}.dtype is not {dtype}")
            return f"{name} is not None and ({' or '.join(wrong)})"
        fits = source.const(tangent_coercion.fits, "fits")
        kind = f"{source.const(meta, 'meta')}, {source.const(specs, 'specs')}"
        return f"{name} is not None and not {fits}({name}, {kind})"

    def tangents(self) -> list[str]:
        """Appends what takes tangents apart; returns their leaves."""
        given = None
        if len(self.names) > 1:  # else there is one: autograd does not go backward for nothing at all
            given = self.source.fresh("tangents"), self.source.fresh("without_data")  # names: zeros may need them often
            self.source.line(f"{given[0]} = ({', '.join(self.names)},)")
            self.source.line(f"{given[1]} = None")
        assert self.graphs.backward is not None
        inputs = self.graphs.backward.graph.find_nodes(op="placeholder")
        expanded = iter([is_taken_expanded(x) for x in inputs if isinstance(outermost(descriptor_of(x)), Tangent)])
        pairs = zip(self.names, self.signature.tangents, strict=True)
        return [leaf for name, tangent in pairs for leaf in self.tangent(name, tangent, given, expanded)]

    def tangent(
        self, name: str, tangent: TangentSpec, given: tuple[str, str] | None, expanded: Iterator[bool]
    ) -> list[str]:
        """Appends what takes one tangent apart, zeros where it is undefined; returns its leaves.

        Args:
            name: The name of the tangent.
            tangent: What it should be.
            given: The names of all tangents, and of whether one has no data, once that was asked; None if this one is
                always defined.
            expanded: Whether the graph takes the next leaf expanded.
        """
        source, symints = self.source, self.symints
        specs = [spec for spec in tangent.specs if not is_symbolic(spec)]  # its sizes are those of the result
        leaves = [source.fresh(f"{name}_{i}") for i in range(len(specs))]
        constants = [source.const(s, "spec") for s in specs]
        if given is not None:
            with source.block(f"if {name} is None:"):
                zeros = source.const(tangent_coercion.zeros, "zeros")
                tangents, without_data = given
                with source.block(f"if {without_data} is None:"):
                    asked = source.const(tangent_coercion.any_without_data, "any_without_data")
                    source.line(f"{without_data} = {asked}({tangents})")
                for leaf, spec, constant in zip(leaves, specs, constants, strict=True):
                    if isinstance(spec, Spec):
                        geometry = f"{symints.all(spec.size)}, {symints.all(spec.stride)}"
                        source.line(f"{leaf} = {zeros}({constant}, {geometry}, {without_data})")
                    else:
                        source.line(f"{leaf} = {constant}")
        with source.block("else:") if given is not None else nullcontext():
            parts = emit_unwrap(source, tangent.meta, name, where=name, append_symints=False, check=False)
            restride = source.const(tangent_coercion.restrided, "restrided")
            for leaf, part, spec in zip(leaves, parts, specs, strict=True):
                source.line(f"{leaf} = {part}")
                if isinstance(spec, Spec):
                    stride = symints.all(spec.stride)
                    other = f"{leaf}.stride() != {stride}"
                    if next(expanded):  # see Note [Expanded gradients]
                        other += f" and any({leaf}.stride())"
                    source.line(f"if {other}: {leaf} = {restride}({leaf}, {stride})")
        return [leaf for leaf, spec in zip(leaves, specs, strict=True) if isinstance(spec, Spec)]


def _retain(for_backward: list[Any], position: int, gradient: torch.Tensor) -> None:
    """Sets the `.grad` of a result, or adds to it where an earlier backward has set it.

    It is not read before: of a tensor that is no leaf, torch warns.
    """
    kept = for_backward[position]
    reference, was_set = kept if isinstance(kept, tuple) else (kept, False)
    result = reference()
    if result is not None:
        before = result.grad if was_set else None
        result.grad = gradient if before is None else before + gradient
        for_backward[position] = reference, True


def _fail(error: str) -> NoReturn:
    raise RuntimeError(error)
