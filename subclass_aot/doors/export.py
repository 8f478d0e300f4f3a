"""From a compiled function to a `torch.export.ExportedProgram` of dense tensors, which needs nothing of this library.

Note [Exported programs]
~~~~~~~~~~~~~~~~~~~~~~~~
The forward graph of a signature has dense tensors alone. Around it stands, as a module, what a call does: the arguments
are flattened as for a call, leaves of weights are buffers, results get their structure. torch exports that module; so
what it says of sizes, of writes into buffers and arguments, and of names, is torch's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.engine.call import ArgumentPlace, Arguments, flatten
from subclass_aot.engine.compile import CompiledFunction
from subclass_aot.engine.graph import name_of_drawn
from subclass_aot.engine.outputs import SameAsInput, Value, ViewOfInput
from subclass_aot.engine.passes import copied_graph, take_any_strides
from subclass_aot.engine.runtime import write_dense_program
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.specializations import Specialization
from subclass_aot.errors import ExportError
from subclass_aot.kit.flatten import PlainTensorMeta

_WHY = """{name} cannot be exported: {what}
  Why:     {why}
  Instead: {instead}"""

_NO_TUPLE = """args must be a tuple of the arguments, and is a {kind}.
  Instead: export_forward(compiled, (x,)) for one argument x"""

_NOT_COMPILED = """export_forward takes what aot_compile returned, and got a {kind}.
  Instead: export_forward(aot_compile(fn), args)"""


def export_forward(
    compiled: CompiledFunction[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> torch.export.ExportedProgram:
    """Exports the forward of a compiled function as a program of dense tensors.

    The arguments choose the signature, as they do in a call, and what was not compiled yet is. Nothing is run. It is
    exported without gradients, as under `torch.no_grad()`. Leaves of weights are buffers by name, as
    `layers.0.weight.codes`; sizes that are symbols of the signature are dynamic.

    Args:
        compiled: What `aot_compile` returned.
        args: Arguments of a call. Their tensors are dense.
        kwargs: Keyword arguments.

    Returns:
        The program, to be called as the function is; `torch.export.save` and AOTInductor take it.

    Raises:
        ExportError: The function does what no program of dense tensors can do; the message names it.

    >>> from subclass_aot import aot_compile
    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> program = export_forward(aot_compile(model), (torch.ones(1, 2),))
    >>> list(program.state_dict)
    ['weight']
    """
    if not isinstance(compiled, CompiledFunction):
        raise ExportError(_NOT_COMPILED.format(kind=type(compiled).__name__))
    if not isinstance(args, tuple | list):
        raise ExportError(_NO_TUPLE.format(kind=type(args).__name__))
    args, kwargs = tuple(args), dict(kwargs or {})
    name = getattr(compiled.fn, "__name__", type(compiled.fn).__name__)
    with torch.no_grad():
        specialization, arguments = compiled._specialization_for(args, kwargs), compiled._arguments_of(args, kwargs)
        signature = specialization.signature
        for what, why, instead in (*_obstacles(signature, arguments), *_obstacles_in(specialization.graphs.forward)):
            raise ExportError(_WHY.format(name=name, what=what, why=why, instead=instead))
        module = _module(compiled.fn, specialization, arguments, kwargs)
        # torch marks the tensors it is given, for good, where they have dynamic sizes: so these are others.
        stand_ins = {id(x): x.detach() for x in arguments.values}
        given, named = _torch.modules.map_tree(lambda x: stand_ins.get(id(x), x), (args, kwargs))
        dynamic: Any = _dynamic_sizes(specialization, arguments, stand_ins)
        return torch.export.export(module, given, named, dynamic_shapes=dynamic, strict=False)


def _obstacles(signature: JointSignature, arguments: Arguments) -> Iterator[tuple[str, str, str]]:
    """Yields what keeps a call from being a program of dense tensors: what, why, and what to write instead."""
    yield from _obstacles_in_reads(signature)
    yield from _obstacles_in_changes(signature)
    yield from _obstacles_among_inputs(signature, arguments)
    for i, output in enumerate(signature.outputs):
        of_wrapper = isinstance(output, SameAsInput | ViewOfInput) and not _is_dense(signature, output.value)
        if of_wrapper or isinstance(output, Value) and not isinstance(output.meta, PlainTensorMeta):
            yield (
                f"result {i} is a wrapper tensor",
                "a program of dense tensors gives dense tensors.",
                "return its inner tensors, or what it stands for, as to_plain() gives it.",
            )


def _obstacles_in_reads(signature: JointSignature) -> Iterator[tuple[str, str, str]]:
    assumptions = signature.assumptions
    for look in assumptions.looks:
        yield (
            f"it reads a value ({look.line})",
            "a call checks that the value is the one it was compiled for; a program has no other to turn to.",
            "torch.where or torch.cond; or give the value as a Python argument.",
        )
    for runtime_assert in assumptions.runtime_asserts:
        yield (
            f"a size depends on data, of which something is assumed ({runtime_assert.line or 'in an operator'})",
            "a call checks that, and is compiled anew where it is not so; a program has no other to turn to.",
            "a shape that does not depend on values, as torch.where(mask, x, 0) for x[mask].",
        )
    if assumptions.read:
        path = signature.path_of(assumptions.read[0][0])
        yield (
            f"the values of {path} were read while it was traced",
            "a call checks that they are the same; a program has no other to turn to.",
            "give them as Python numbers.",
        )
    for beginning in assumptions.beginnings[:1]:
        yield (
            f"it reads where {signature.paths[beginning.input]}{beginning.path} begins in its storage",
            "a call checks that this is the same; a program has no other to turn to.",
            "slices, or as_strided without a storage offset, which counts from the tensor.",
        )


def _obstacles_in_changes(signature: JointSignature) -> Iterator[tuple[str, str, str]]:
    mutations, outcome = signature.mutations, signature.outcome
    if outcome.changes_process:
        yield (
            "it leaves another state of the generator of random numbers, or another default dtype",
            "a program only computes.",
            "set them outside, before it and after it.",
        )
    for change in outcome.changes:
        yield (
            f"it changes {change.path}",
            "a program returns tensors, and changes buffers and arguments that are tensors.",
            "return what it puts there.",
        )
    if outcome.objects:
        yield "it returns an object of the call", "a program knows no objects.", "return the tensors of it."
    if any(m.metadata_mutations or m.requires_grad_mutation or m.mutated_in_backward for m in mutations.of_inputs):
        yield (
            "it changes an input beside its data (its sizes, its strides, or whether it requires grad)",
            "a program only writes data.",
            "return another tensor.",
        )
    if mutations.under_autograd or signature.tangents or signature.made_leaves:
        yield (
            "autograd goes through its results, since it switches gradients on",
            "a program has no gradients.",
            "leave out torch.enable_grad, or detach what is returned.",
        )
    if mutations.bases or signature.views:
        yield (
            "it writes into memory that several of its tensors share",
            "a program takes each tensor for one of its own.",
            "call it with tensors of their own, as x.clone().",
        )


def _obstacles_in(graph: fx.GraphModule) -> Iterator[tuple[str, str, str]]:
    for node in graph.graph.nodes:
        name = name_of_drawn(node.target)
        if name is not None:
            yield (
                f"it sets the state of the generator of random numbers ({name})",
                "no operator of torch takes the state of a generator.",
                "draw outside, and give the random numbers as an argument.",
            )


def _obstacles_among_inputs(signature: JointSignature, arguments: Arguments) -> Iterator[tuple[str, str, str]]:
    seen: dict[int, str] = {}
    for place, position in arguments.placed:
        if not isinstance(place, ArgumentPlace):
            continue
        if position < len(signature.inputs) and not _is_dense(signature, position):
            yield (
                f"{place.path} is a {type(arguments.values[position]).__name__}",
                "a program of dense tensors takes dense tensors.",
                "take its inner tensors as arguments and make the wrapper in the function, or hold it in a module.",
            )
        if position in seen:
            yield (
                f"{seen[position]} and {place.path} are one tensor",
                "what was compiled for that holds for such calls alone.",
                "give two tensors, as x and x.clone().",
            )
        seen[position] = place.path
    for leaf, accessor in zip(arguments.leaves, arguments.treespec.accessors(), strict=True):
        if isinstance(leaf, torch.nn.Module):
            yield (
                f"a module is among its arguments ({type(leaf).__name__}, {accessor.codify('')})",
                "a program takes tensors and Python values.",
                "compile a function or a module that holds it.",
            )


def _is_dense(signature: JointSignature, position: int) -> bool:
    return isinstance(signature.inputs[position].meta, PlainTensorMeta)


def _module(
    fn: Callable[..., Any], specialization: Specialization, arguments: Arguments, kwargs: Mapping[str, Any]
) -> torch.nn.Module:
    """Returns a module that does what the call does, as a function of dense arguments. See Note [Exported programs]."""
    signature = specialization.signature
    graph = copied_graph(specialization.graphs.forward)
    for node in graph.graph.nodes:
        node.target = WRITTEN_OUT.get(node.target, node.target)
    graph.recompile()
    take_any_strides(graph)  # where torch decomposes operators, results may have other strides than kernels give
    program = write_dense_program(signature, specialization.graphs, lambda inputs: graph(*inputs))
    leaves = arguments.plan.unwrap(arguments.values)
    where: list[int | str] = []  # of each flat slot: which argument it is, or the name of a buffer
    buffers: dict[str, Any] = {}
    left_out: set[str] = set()
    without = _left_out_of_state_dicts(arguments)
    for slot in signature.index_map.slots:
        place, _ = arguments.place_of(slot.outer)
        if isinstance(place, ArgumentPlace):
            where.append(place.leaf)
        else:
            name = _buffer_name(place.path + "".join(slot.path), buffers)
            buffers[name] = leaves[slot.flat]
            if id(arguments.values[slot.outer]) in without:
                left_out.add(name)
            where.append(name)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        given, _ = flatten((args, kwargs))
        return program([given[at] if isinstance(at, int) else self.get_buffer(at) for at in where])

    forward.__signature__ = _signature(fn, kwargs)  # type: ignore[attr-defined]
    module: torch.nn.Module = type("Exported", (torch.nn.Module,), {"forward": forward})()
    for name, tensor in buffers.items():
        *path, last = name.split(".")
        holder = module
        for step in path:
            if not hasattr(holder, step):
                holder.add_module(step, torch.nn.Module())
            holder = getattr(holder, step)
        tensor = tensor.detach() if isinstance(tensor, torch.Tensor) else tensor
        holder.register_buffer(last, tensor, persistent=name not in left_out)
    return module


def _left_out_of_state_dicts(arguments: Arguments) -> set[int]:
    """Returns the ids of buffers that modules leave out of their state dicts, which the program does, too."""
    modules = [module for _, module in arguments.modules]
    return {
        id(_torch.modules.buffers_of(module).get(name))
        for module in modules
        for name in _torch.modules.names_left_out_of(module)
    }


def _signature(fn: Callable[..., Any], kwargs: Mapping[str, Any]) -> inspect.Signature:
    """Returns the parameters of a function after `self`; what a `**kwargs` takes, by name, where torch has no
    dynamic sizes.
    """
    own = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn).parameters.values()
    names = {p.name for p in own}
    parameters = [inspect.Parameter("self" if "self" not in names else "_self", inspect.Parameter.POSITIONAL_ONLY)]
    for parameter in own:
        if parameter.kind is parameter.VAR_KEYWORD:
            more = [name for name in kwargs if name not in names]
            parameters += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in more]
        else:
            parameters.append(parameter.replace(annotation=parameter.empty))
    return inspect.Signature(parameters)


def _buffer_name(path: str, taken: Mapping[str, Any]) -> str:
    """Returns the name of a leaf: its path, where that is one of names with dots between.

    >>> _buffer_name("self.layers.0.weight.codes", {}), _buffer_name("fn.cache['k'][0]", {})
    ('layers.0.weight.codes', 'fn.cache.k.0')
    """
    steps = [re.sub(r"\W", "_", step) for step in re.split(r"[.\[\]'\"]+", path.removeprefix("self.")) if step]
    name = ".".join(steps)
    while name in taken or any(other.startswith(f"{name}.") or name.startswith(f"{other}.") for other in taken):
        name += "_"
    return name


def _dynamic_sizes(
    specialization: Specialization, arguments: Arguments, stand_ins: Mapping[int, torch.Tensor]
) -> torch.export.ShapesCollection | None:
    """Returns which sizes of the arguments are dynamic: those that are symbols.

    What stands in for each goes by its id.
    """
    found = torch.export.ShapesCollection()
    for place, position in arguments.placed:
        if isinstance(place, ArgumentPlace):
            value = arguments.values[position]
            dims = [dim for dim in range(value.dim()) if f"{place.path}.size({dim})" in specialization.places]
            if dims:
                found[stand_ins[id(value)]] = dict.fromkeys(dims, torch.export.Dim.DYNAMIC)
    return found if len(found) else None
