"""Checks what must hold between the stages of a compilation, with `SUBCLASS_AOT_CHECK=1`: for tests of this library.

A mistake in one stage shows as a wrong value in another, or not at all. Here it is an error with stage and node:

- graphs are well formed, and each input and output has a descriptor of its own;
- forward gives what the signature reads, and backward takes what forward saves and the tangents;
- what an operator gives has the size, dtype and device that torch's own fake kernels give, where sizes are known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.operators import effects_of
from subclass_aot.engine import stages
from subclass_aot.engine.descriptors import LiveInput, descriptor_of
from subclass_aot.engine.runtime import Graphs
from subclass_aot.engine.trace import JointTrace
from subclass_aot.meta import Spec

_BROKEN = """An invariant does not hold: {what}.
  In the {stage} graph of `{name}`.
  This is a mistake of subclass_aot: please report it, with the function."""


class InvariantError(AssertionError):
    """A stage of a compilation has given what the next one does not expect."""


def check(name: str, trace: JointTrace, graphs: Graphs) -> None:
    """Checks the graphs of a signature, before they are compiled.

    Args:
        name: What errors call the function.
        trace: The joint graph, and its signature.
        graphs: What the partition has made of it.

    Raises:
        InvariantError: Something does not hold.
    """
    of_stage = {"joint": trace.graph_module, "forward": graphs.forward, "backward": graphs.backward}
    for stage, module in of_stage.items():
        broken = () if module is None else (*_form(module.graph), *_descriptors(module.graph), *_specs(module.graph))
        for what in broken:
            raise InvariantError(_BROKEN.format(what=what, stage=stage, name=name))
    for what in _arities(trace, graphs):
        raise InvariantError(_BROKEN.format(what=what, stage="forward or backward", name=name))


def _form(graph: fx.Graph) -> Iterator[str]:
    """Yields what is not as a graph has to be."""
    try:
        graph.lint()
    except Exception as error:  # whatever torch says of it
        pass_on_interruption(error)
        yield f"it is not well formed: {error}"
    begun = False
    for node in graph.nodes:
        begun |= node.op not in ("placeholder", "get_attr")
        if begun and node.op == "placeholder":
            yield f"the input {node.name} stands behind operators"


def _descriptors(graph: fx.Graph) -> Iterator[str]:
    """Yields the inputs and outputs that have no descriptor of their own."""
    seen = set()
    for node in graph.find_nodes(op="placeholder"):
        desc = descriptor_of(node)
        if desc is None or desc in seen:
            yield f"the input {node.name} has no descriptor of its own: {desc}"
        seen.add(desc)
    output = graph.output_node()
    outputs: Any = output.args[0]
    descs = descriptor_of(output)
    if descs is None or len(descs) != len(outputs) or len({*descs}) != len(outputs):
        yield f"{len(outputs)} outputs have the descriptors {descs}"


def _arities(trace: JointTrace, graphs: Graphs) -> Iterator[str]:
    """Yields the counts that do not agree."""
    inputs = len(graphs.forward.graph.find_nodes(op="placeholder"))
    brought = len(trace.signature.graph_slots) + len(trace.signature.mutations.bases)
    if inputs != brought:
        yield f"forward has {inputs} inputs, and a call brings {brought}"
    results: Any = graphs.forward.graph.output_node().args[0]
    expected = len(graphs.computed) + len(graphs.saved) + graphs.num_saved_symints
    if len(results) != expected:
        yield f"forward has {len(results)} outputs, and {expected} are read of it"
    if graphs.backward is not None:
        descs = map(descriptor_of, graphs.backward.graph.find_nodes(op="placeholder"))
        given = len([desc for desc in descs if not isinstance(desc, LiveInput)])  # others are inputs that it writes
        tangents = sum(len([s for s in tangent.specs if isinstance(s, Spec)]) for tangent in trace.signature.tangents)
        expected = len(graphs.saved) + graphs.num_saved_symints + tangents
        if given != expected:
            yield f"backward has {given} inputs, and is given {expected}"


def _specs(graph: fx.Graph) -> Iterator[str]:
    """Yields the operators that give something else than torch's fake kernels."""
    with _torch.switches.as_recorded(), _torch.inductor.fake_mode():
        for node in graph.nodes:
            fake = _fake_run(node) if node.op == "call_function" else None
            found, known = map(_of_tensor, fake or ()), map(_of_spec, _known(node) if fake else ())
            if (there := [*found]) != (here := [*known]):
                yield f"{node.format_node()} has {here}, and torch gives {there}"


def _known(node: fx.Node) -> list[Any]:
    spec = node.meta.get("spec")
    return list(spec) if isinstance(spec, list | tuple) else [spec]


def _of_spec(spec: Spec) -> tuple[object, ...]:
    return spec.size, spec.dtype, spec.device.type


def _of_tensor(tensor: torch.Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.dtype, tensor.device.type


def _fake_run(node: fx.Node) -> list[Any] | None:
    """Returns what torch's fake kernels give for an operator; None where nobody can compare that."""
    func: Any = node.target
    if not _torch.operators.is_overload(func) or func.namespace != "aten":
        return None
    effects = effects_of(func)
    if effects.data_dependent or effects.composite or not all(isinstance(spec, Spec) for spec in _known(node)):
        return None
    unknown = False

    def fake(value: fx.Node) -> Any:
        nonlocal unknown
        spec = value.meta.get("spec")
        if not isinstance(spec, Spec) or spec.solver is not None or spec.layout is not torch.strided:
            unknown = True
            return None
        return torch.empty_strided(spec.size, spec.stride, dtype=spec.dtype, device=spec.device)

    args, kwargs = fx.map_arg((node.args, node.kwargs), fake)
    if unknown or any(spec.solver is not None for spec in _known(node)):
        return None
    try:
        result = func(*args, **kwargs)
    except Exception as error:  # torch has no fake kernel, or a worse one than we have
        pass_on_interruption(error)
        return None
    results = list(result) if isinstance(result, list | tuple) else [result]
    return results if all(isinstance(x, torch.Tensor) for x in results) else None


if os.environ.get("SUBCLASS_AOT_CHECK") == "1":
    stages.checked_by.append(check)
