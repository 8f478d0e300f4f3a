"""The generated function that takes tangents apart, runs the backward graph and wraps gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn

import torch

from subclass_aot import _torch
from subclass_aot.backends import BoxedFunction
from subclass_aot.codegen import Source
from subclass_aot.descriptors import BackwardMutation, Number, OutputDescriptor, descriptor_of
from subclass_aot.flatten import PlainTensorMeta, SubclassCreationMeta, ValueMeta, emit_unwrap, emit_wrap
from subclass_aot.meta import Spec
from subclass_aot.outcome import BackwardOutcome, emit_finish
from subclass_aot.outputs import ComputedSymints, Constant, InputLeaf, SameAsOutput, Value
from subclass_aot.runtime import tangent_coercion
from subclass_aot.runtime.calling_convention import Convention, SymintNames, emit_run
from subclass_aot.runtime.graphs import Graphs
from subclass_aot.runtime.lazy import LazyFunction
from subclass_aot.runtime.once import without_way_back
from subclass_aot.runtime.unexpected_tangents import UnexpectedTangents
from subclass_aot.signature import JointSignature, TangentSpec
from subclass_aot.symbols import is_symbolic


def write_backward(
    convention: Convention, graph: BoxedFunction, others: UnexpectedTangents | None = None
) -> Callable[..., Any]:
    """Generates `backward(ctx, *tangents)`.

    Args:
        convention: What the functions agree on.
        graph: The backward graph, compiled.
        others: What to do with gradients of other kinds than the graph is for; None if there are no others.
    """
    signature, graphs = convention.signature, convention.graphs
    names = [f"tangent_{i}" for i in range(len(signature.tangents))]
    params = ", ".join(["ctx", *names])
    source = Source("backward", params, "Unwraps tangents, runs the backward graph, wraps gradients.")
    nothing = ", ".join(["None"] * (len(convention.parameters) + len(convention.requires_grad_inputs)))
    missing = " and ".join(f"{name} is None" for name in names)
    source.line(f"if {missing}: return ({nothing},)  # autograd passes by, on its way to something else")
    for name, tangent in zip(names, signature.tangents, strict=True):
        if tangent.error is not None:
            fail = source.const(functools.partial(_fail, tangent.error), "fail")
            source.line(f"if {name} is not None: {fail}()")
    sizes = [source.fresh(f"size_{i}") for i in range(graphs.num_saved_symints)]
    symints = SymintNames.of({desc: source.fresh(str(desc)) for desc in graphs.computed if isinstance(desc, Number)})
    if sizes or symints.names:
        source.line(f"({''.join(n + ', ' for n in (*sizes, *symints.names.values()))}) = ctx.sizes")
    put = signature.backward_outcome
    present = None
    if put is not None:
        source.line("for_backward = ctx.objects")
        present = _present(source, put, symints) if put.expected else None
    if others is not None:
        _hand_over(source, convention, others, names, symints, present)
    saved = [source.fresh(f"saved_{i}") for i in range(len(graphs.saved))]
    ignored = [source.fresh("checked") for _ in convention.checked]
    if saved or ignored:
        source.line(f"({''.join(n + ', ' for n in saved + ignored)}) = ctx.saved_tensors")
        if ignored:
            source.line(f"del {', '.join(ignored)}")
    tangents: list[str] = []
    given = None
    if len(names) > 1:  # else there is one: autograd does not go backward for nothing at all
        given = source.fresh("tangents")  # a name, since each line for zeros needs all of them
        source.line(f"{given} = ({', '.join(names)},)")
    for name, tangent in zip(names, signature.tangents, strict=True):
        tangents += _tangent(source, name, tangent, symints, given)
    live = [source.fresh("live") for _ in signature.mutations.in_backward]
    if live:
        source.line(f"({', '.join(live)},) = ctx.live")
    inputs = sizes + saved + tangents + live
    source.line(f"inputs = [{', '.join(inputs)}]")  # a name of its own, so that saved tensors and zeros can be freed
    if saved or tangents:
        source.line(f"del {', '.join(saved + tangents)}")
    if saved or ignored:
        if isinstance(graph, LazyFunction):  # where compiling fails, nothing is lost
            lazy = source.const(graph, "backward_graph")
            source.line(f"if not {lazy}.is_compiled: {lazy}.compiled()")
        source.line(f"ctx.{_torch.CLEAR_SAVED}()  # the graph releases each when it has been read")
    assert graphs.backward is not None
    computed = {desc: source.fresh(str(desc)) for desc in descriptor_of(graphs.backward.graph.output_node())}
    emit_run(source, list(computed.values()), graph, "inputs", "backward")
    written = [name for desc, name in computed.items() if isinstance(desc, BackwardMutation)]
    for target, value in zip(live, written, strict=True):
        source.line(f"{target}.copy_({value})")
    structure = {slot: source.fresh("structure") for slot in convention.structure}
    if structure:
        source.line(f"({', '.join(structure.values())},) = ctx.structure")
    results = ["None"] * len(convention.parameters)
    for i in convention.requires_grad_inputs:
        wanted = signature.gradient_targets[i]
        gradient = wanted.gradient
        if gradient is None:
            results.append("None")
            continue
        reach = [names[k] for k in wanted.reach]
        if len(reach) == len(names):
            results.append(_wrap(source, gradient, computed, structure))
            continue
        results.append(source.fresh("gradient"))  # see Note [Reach]
        with source.block(f"if {' and '.join(f'{name} is None' for name in reach)}:"):
            source.line(f"{results[-1]} = None")
        with source.block("else:"):
            source.line(f"{results[-1]} = {_wrap(source, gradient, computed, structure)}")
    if put is not None:
        made = _put(source, put, computed, symints)
        emit_finish(source, put.outcome, [], made)
        for kept, output in put.retained:
            source.line(f"{source.const(_retain, 'retain')}(for_backward, {kept}, {made[output]})")
    source.line(f"return ({', '.join(results)},)")
    return source.build()


def _present(source: Source, put: BackwardOutcome, symints: SymintNames) -> str:
    """Appends what compares objects with what backward expects in them; returns the local of what is there instead."""
    numbers = [
        symints.names[output.parts[0].number]
        if isinstance(output, ComputedSymints) and not output.is_size and isinstance(output.parts[0], Number)
        else "0"
        for output in put.outputs
    ]
    name = source.fresh("present")
    source.line(
        f"{name} = {source.const(put.present, 'present')}(for_backward, ({''.join(n + ', ' for n in numbers)}))"
    )
    return name


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


def _put(
    source: Source, put: BackwardOutcome, computed: Mapping[OutputDescriptor, str], symints: SymintNames
) -> list[str]:
    """Appends what makes the tensors and numbers that hooks put into objects; returns an expression of each."""
    made: list[str] = []
    for output in put.outputs:
        match output:
            case Value():
                value = _wrap(source, output, computed, {})
                lost = source.const(without_way_back, "without_way_back") if output.requires_grad else ""
                made.append(f"{lost}({value})" if output.requires_grad else value)
            case SameAsOutput():
                made.append(made[output.output])
            case ComputedSymints():
                parts = [symints.names[p.number] if isinstance(p, Number) else str(p) for p in output.parts]
                size = source.const(torch.Size, "Size") if output.is_size else ""
                made.append(f"{size}(({', '.join(parts)},))" if output.is_size else parts[0])
            case Constant():
                made.append(source.const(output.value, "constant"))
    return made


def _fail(error: str) -> NoReturn:
    raise RuntimeError(error)


def _wrap(source: Source, gradient: Value, computed: Mapping[OutputDescriptor, str], structure: dict[int, str]) -> str:
    leaves = []
    for x in gradient.leaves:
        if isinstance(x, InputLeaf):
            leaves.append(structure[x.slot])
        else:
            leaves.append(computed[x] if isinstance(x, OutputDescriptor) else source.const(x, "opaque"))
    return emit_wrap(source, gradient.meta, leaves)


def _hand_over(
    source: Source,
    convention: Convention,
    others: UnexpectedTangents,
    names: list[str],
    symints: SymintNames,
    present: str | None,
) -> None:
    """Appends what hands gradients over to `others`: of another kind, or where objects hold something else by now.

    Args:
        source: The function.
        convention: What the functions agree on.
        others: What to do then.
        names: The names of the gradients.
        symints: The names of numbers.
        present: The local of what objects hold that is not what was expected, if they are compared.
    """

    def write_other(signature: JointSignature, graphs: Graphs, backward: BoxedFunction) -> Callable[..., Any]:
        """Returns the backward for other tangents, after the same forward."""
        return write_backward(
            Convention(
                signature, graphs, convention.keeps_inputs, convention.requires_grad_inputs, convention.keeps_objects
            ),
            backward,
        )

    tangents = convention.signature.tangents
    wrong = [_wrong(source, n, t.meta, t.specs, symints) for n, t in zip(names, tangents, strict=True)]
    if len(names) > 1:  # autograd does not go backward for nothing at all
        wrong += [f"{names[i]} is None" for i in others.needed]
    take = source.const(
        functools.partial(others.take, write_other, [str(tangent.output) for tangent in tangents]), "other_kind"
    )
    if present is not None:
        wrong.append(f"{present} is not None")
    with source.block(f"if {' or '.join(wrong)}:"):
        source.line(f"run, {', '.join(names)} = {take}({present}, {', '.join(names)})")
        source.line(f"if run is not None: return run(ctx, {', '.join(names)})")


def _wrong(source: Source, name: str, meta: ValueMeta, specs: Sequence[Any], symints: SymintNames) -> str:
    """Returns the condition that a gradient is not of the kind that was traced."""
    if not isinstance(meta, SubclassCreationMeta):
        return f"hasattr({name}, '__tensor_flatten__')"
    if meta.context is None and all(isinstance(x, PlainTensorMeta) for x in meta.attrs.values()):
        cls, dense = source.const(meta.cls, meta.cls.__name__), source.const(torch.Tensor, "Tensor")
        wrong = [f"type({name}) is not {cls}"]
        for a, spec in zip(meta.attrs, specs, strict=False):  # sizes and strides of the wrapper may follow
            size, dtype = symints.all(spec.size), source.const(spec.dtype, "dtype")
            wrong.append(f"type({name}.{a}) is not {dense}")
            wrong.append(f"{name}.{a}.size() != {size} or {name}.{a}.dtype is not {dtype}")
        return f"{name} is not None and ({' or '.join(wrong)})"
    fits = source.const(tangent_coercion.fits, "fits")
    kind = f"{source.const(meta, 'meta')}, {source.const(specs, 'specs')}"
    return f"{name} is not None and not {fits}({name}, {kind})"


def _tangent(source: Source, name: str, tangent: TangentSpec, symints: SymintNames, given: str | None) -> list[str]:
    """Appends what takes one tangent apart, zeros where it is undefined; returns its leaves.

    Args:
        source: The function.
        name: The name of the tangent there.
        tangent: What it should be.
        symints: The names of symbolic numbers.
        given: The name of all tangents; None if this one is always defined.
    """
    specs = [spec for spec in tangent.specs if not is_symbolic(spec)]  # its sizes are those of the result
    leaves = [source.fresh(f"{name}_{i}") for i in range(len(specs))]
    constants = [source.const(s, "spec") for s in specs]
    if given is not None:
        with source.block(f"if {name} is None:"):
            zeros = source.const(tangent_coercion.zeros, "zeros")
            for leaf, spec, constant in zip(leaves, specs, constants, strict=True):
                if isinstance(spec, Spec):
                    geometry = f"{symints.all(spec.size)}, {symints.all(spec.stride)}"
                    source.line(f"{leaf} = {zeros}({constant}, {geometry}, {given})")
                else:
                    source.line(f"{leaf} = {constant}")
    with source.block("else:") if given is not None else nullcontext():
        parts = emit_unwrap(source, tangent.meta, name, where=name, append_symints=False, check=False)
        restride = source.const(tangent_coercion.restrided, "restrided")
        for leaf, part, spec in zip(leaves, parts, specs, strict=True):
            source.line(f"{leaf} = {part}")
            if isinstance(spec, Spec):
                stride = symints.all(spec.stride)
                source.line(f"if {leaf}.stride() != {stride}: {leaf} = {restride}({leaf}, {stride})")
    return [leaf for leaf, spec in zip(leaves, specs, strict=True) if isinstance(spec, Spec)]
