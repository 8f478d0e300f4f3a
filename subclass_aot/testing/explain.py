"""The report that `explain()` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from torch import fx

from subclass_aot.engine import specializations as compiled
from subclass_aot.engine.descriptors import PlainOutput
from subclass_aot.engine.outputs import (
    ComputedSymints,
    Constant,
    Output,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfBase,
    ViewOfInput,
)
from subclass_aot.engine.signature import InputMutation, JointSignature
from subclass_aot.engine.specializations import Specialization
from subclass_aot.kit.flatten import ValueMeta
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import Symbols

_TRANSFORMED = """
not compiled: calls inside a transform (torch.func.grad, vmap, jvp, ..., forward-mode autograd) run the function itself
  for speed, compile the transformed function, as in aot_compile(torch.func.grad(fn))"""


@compiled.explain.put
def explain(fn: Callable[..., object], specializations: Sequence[Specialization], was_transformed: bool = False) -> str:
    """Says everything worth knowing of what was compiled for `fn`, one section for each signature."""
    name = getattr(fn, "__name__", type(fn).__name__)
    uncompiled = _TRANSFORMED.splitlines() if was_transformed else []
    if not specializations:
        return "\n".join([f"{name}: nothing was compiled yet, the first call compiles.", *uncompiled])
    count = len(specializations)
    lines = [f"{name}: {count} signature{'s' if count > 1 else ''}, the one used last first", *uncompiled]
    for number, specialization in enumerate(specializations, 1):
        lines.append("")
        lines.append(f"signature {number}: {specialization.reason}")
        lines.extend("  " + line for line in _section(specialization))
    return "\n".join(lines)


def _section(specialization: Specialization) -> list[str]:
    """Describes one signature, line by line."""
    signature, graphs = specialization.signature, specialization.graphs
    lines = ["inputs"]
    for given in signature.inputs:
        leaves = ", ".join(_spec(x, signature.assumptions.symbols) for x in given.specs)
        grad = " requires_grad" if given.requires_grad else ""
        static = " static" if given.is_static else ""
        lines.append(f"  {given.path}: {_class(given.meta)} = {leaves}{grad}{static}")
    lines += [f"  {path}: a view of one of these" for path in signature.views]
    if signature.assumptions.symbols is not None:
        symbols = {text: place for place, text in reversed(specialization.places.items()) if text.isidentifier()}
        lines += [f"  {symbols[text]} is {text}" for text in sorted(symbols)]
        for where, number, place in signature.assumptions.symbols.pinned():
            lines.append(f"compiled for this size alone: {where} == {number}" + (f" ({place})" if place else ""))
        for text, place in signature.assumptions.symbols.assumptions(symbols):
            lines.append(f"guard: {text}" + (f" ({place})" if place else ""))
    for position, path, offset in signature.assumptions.beginnings:
        lines.append(f"reads where {signature.paths[position]}{path} begins in its storage: at element {offset}")
    lines += [f"reads a value: {look.value!r} ({look.line})" for look in signature.assumptions.looks]
    for runtime_assert in signature.assumptions.runtime_asserts:
        names = {symbol: str(symbol) for symbol in runtime_assert.symints}
        lines.append(f"{runtime_assert.by}: {runtime_assert.text(names)} ({runtime_assert.line})")
    lines.append("outputs")
    places = signature.outcome.assigned
    count = len(signature.outputs) - len(places)
    made_leaves = {leaf.output for leaf in signature.made_leaves}
    for i, output in enumerate(signature.outputs):
        place = ", a leaf of autograd's graph" if PlainOutput(i) in made_leaves else ""
        place += "" if i < count else f", put into {places[i - count]}"
        lines.append(f"  {i}: {_output(output, signature)}{place}")
    lines += [f"changed: {path}" for path in dict.fromkeys(change.path for change in signature.outcome.changes)]
    if signature.backward_outcome is not None:
        later = signature.backward_outcome.outcome.changes
        lines += [f"changed by backward: {path}" for path in dict.fromkeys(change.path for change in later)]
    for mutation in signature.mutations.of_inputs:
        lines += _mutations(signature, mutation)
    for base in signature.mutations.bases:
        lines.append(f"one storage in the graph: {', '.join(map(signature.path_of, base.slots))}")
    lines.append(f"forward graph: {_size(graphs.forward)}, saves {len(graphs.saved)} tensors for backward")
    if graphs.backward is not None:
        parts = f", in {len(signature.parts)} parts" if signature.parts else ""
        lines.append(f"backward graph: {_size(graphs.backward)}{parts}")
    return lines


def _mutations(signature: JointSignature, mutation: InputMutation) -> Iterator[str]:
    """Yields what a call does to one of its inputs."""
    path = signature.paths[mutation.input]
    if mutation.new_value is not None:
        yield f"written after the graph, where autograd sees it: {path}"
    else:
        yield from (f"written in the graph: {signature.path_of(slot)}" for slot in mutation.mutated_leaves)
    if mutation.metadata_mutations:
        yield f"sizes and strides mutated in place: {path}"
    if mutation.requires_grad_mutation:
        yield f"begins to require grad: {path}"
    if mutation.retains_grad:
        yield f"keeps its gradient: {path}"
    yield from (f"written by backward: {signature.path_of(slot)}" for slot in mutation.mutated_in_backward)


def _output(output: Output, signature: JointSignature) -> str:
    match output:
        case Value():
            return _class(output.meta) + (" requires_grad" if output.requires_grad else "")
        case SameAsInput():
            return f"the same object as {signature.paths[output.value]}"
        case SameAsOutput():
            return f"the same object as {PlainOutput(output.output)}"
        case ViewOfInput():
            return f"a view of {signature.inputs[output.value].path}"
        case ViewOfBase():
            return f"a view of {'what several outputs share' if output.output is None else PlainOutput(output.output)}"
        case ComputedSymints():
            return "a size"
        case Constant():
            return f"the constant {output.value!r}"
    assert_never(output)


def _spec(spec: object, symbols: Symbols | None) -> str:
    """Describes a spec, a number or an opaque value, with the names of symbols."""
    if symbols is None:
        return str(spec)
    if not isinstance(spec, Spec):
        return symbols.text(spec)
    if spec.solver is None:
        return str(spec)
    size = ", ".join(map(symbols.text, spec.size))
    return f"Spec([{size}], {str(spec.dtype).removeprefix('torch.')}, {spec.device})"


def _class(meta: ValueMeta) -> str:
    return meta.cls.__name__


def _size(graph: fx.GraphModule) -> str:
    operators = sum(node.op == "call_function" for node in graph.graph.nodes)
    return f"{operators} operators"
