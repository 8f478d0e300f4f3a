"""What a compiled function does inside `torch.func.grad`, `vjp`, `vmap` and what is made of them.

Note [Transforms around]
~~~~~~~~~~~~~~~~~~~~~~~~
Inside a transform, tensors have levels around them. Torch takes an `autograd.Function` through them: at each level it
asks for the gradient, or for the rule of `vmap`, and at the lowest there are plain tensors, for which there are graphs.
So a call becomes a program: a function of a flat list of tensors, of which the gradient and the rule of `vmap` are
programs in turn, each compiled when plain tensors first reach it.

Which signature it is, tensors without levels tell that look like those of the call: they stand in for them where the
guard is asked. A program is the call as it was recorded for that signature, so that what the guard has compared holds.

That is right for functions that compute new tensors of tensors and do nothing else. For others, and where a transform
has no part in this (forward mode), the function itself runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot._stack import warn
from subclass_aot.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace, Place, RecordedCall, flatten
from subclass_aot.codegen import Source
from subclass_aot.flatten import PlainTensorMeta
from subclass_aot.guards import MISS, global_state
from subclass_aot.outcome import emit_finish
from subclass_aot.outputs import AliasOfLeaf, Constant, InputLeaf, Value
from subclass_aot.passes import draws
from subclass_aot.signature import Mutations
from subclass_aot.specializations import Specialization
from subclass_aot.trace import one_at_a_time

Run = Callable[..., tuple[torch.Tensor, ...]]
"""A function of a list of tensors that no transform reaches, and of the others one by one."""
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


_LIMIT = 64
"""For how many signatures programs are kept."""

_FAILED = """What torch.func makes of {name} could not be compiled, and runs as in eager mode.
  It said: {kind}: {error}"""


class Program:
    """A function of tensors, compiled, and what transforms make of it.

    Args:
        run: The function.
        compile: Compiles one.
        name: What the user's function is called.
    """

    def __init__(self, run: Run, compile: Compile, name: str) -> None:
        self._compiled: Callable[..., Any] | None = compile(run)
        self._run = run
        self._compile = compile
        self._name = name
        self._derived: dict[Hashable, Program] = {}

    def __call__(self, rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Runs it, compiled, or as it is where that fails: then eager mode may fail, too."""
        if self._compiled is not None:
            try:
                return tuple(self._compiled(rest, *values))
            except Exception as error:
                result = self._run(rest, *values)
                self._compiled = None
                warn(_FAILED.format(name=self._name, kind=type(error).__name__, error=error))
                return result
        return self._run(rest, *values)

    def gradient(self, wanted: tuple[bool, ...], given: tuple[bool, ...]) -> Program:
        """The program of the gradients: of values, then of the gradients of those results that have one.

        Args:
            wanted: Of which values.
            given: Which results have one.
        """
        run = self._run

        def gradients(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            own, tangents = values[: len(wanted)], values[len(wanted) :]

            def of(*wished: torch.Tensor) -> tuple[torch.Tensor, ...]:
                found = iter(wished)
                inputs = [next(found) if is_wanted else value for value, is_wanted in zip(own, wanted, strict=True)]
                results = zip(run(rest, *inputs), given, strict=True)
                return tuple(result for result, is_given in results if is_given)

            pull: Any = torch.func.vjp(of, *(value for value, is_wanted in zip(own, wanted, strict=True) if is_wanted))[
                1
            ]
            found: tuple[torch.Tensor, ...] = pull(tangents)
            return found

        return self._made(("gradient", wanted, given), gradients)

    def mapped(self, in_dims: tuple[int | None, ...], randomness: str) -> Program:
        """The program for many values at once, whose results have them along their first dimension.

        Args:
            in_dims: Along which dimension of each value; None for one that is the same for all.
            randomness: As `vmap` has it.
        """
        run = self._run

        def mapped(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            over = torch.func.vmap(lambda *own: run(rest, *own), in_dims, randomness=randomness)
            found: tuple[torch.Tensor, ...] = over(*values)
            return found

        return self._made(("mapped", in_dims, randomness), mapped)

    def _made(self, key: Hashable, run: Run) -> Program:
        found = self._derived.get(key)
        if found is None:
            found = self._derived.setdefault(key, Program(run, self._compile, self._name))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """A program and those of its tensors that no transform reaches."""

    program: Program
    rest: list[Any]

    def __call__(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not _torch.inside_transform():  # the function that `vjp` returns runs when the transform is over
            values = tuple(map(_torch.without_past_levels, values))
            if not (torch.is_grad_enabled() and any(value.requires_grad for value in values)):
                return self.program(self.rest, *(value.detach() for value in values))
        found: tuple[torch.Tensor, ...] = _Transformed.apply(self, *values)  # type: ignore[no-untyped-call]
        return found


class _Transformed(torch.autograd.Function):
    """A program inside a transform. See Note [Transforms around]."""

    @staticmethod
    def forward(bound: _Bound, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return bound.program(bound.rest, *(value.detach() for value in values))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.bound, *values = inputs
        ctx.save_for_backward(*values)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(x for x in output if not _is_differentiable(x)))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        values = ctx.saved_tensors
        wanted = tuple(
            asked and _is_differentiable(x) for x, asked in zip(values, ctx.needs_input_grad[1:], strict=True)
        )
        given = tuple(gradient is not None for gradient in gradients)
        if not any(wanted) or not any(given):
            return (None,) * (1 + len(values))
        program = _Bound(ctx.bound.program.gradient(wanted, given), ctx.bound.rest)
        found = iter(program(*values, *(gradient for gradient in gradients if gradient is not None)))
        return None, *(next(found) if is_wanted else None for is_wanted in wanted)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], bound: _Bound, *values: torch.Tensor) -> Any:
        program = _Bound(bound.program.mapped(tuple(in_dims[1:]), info.randomness), bound.rest)
        results = program(*values)
        return results, (0,) * len(results)


def _is_differentiable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


@dataclass(frozen=True, slots=True, eq=False)
class Transformable:
    """What was compiled for a signature, for calls inside transforms.

    Attributes:
        reached: Which tensors of the call the program takes one by one.
        program: The program.
        finish: Gives flat results their structure.
    """

    reached: tuple[int, ...]
    program: Program
    finish: Callable[[list[Any]], Any]

    def __call__(self, values: Sequence[torch.Tensor]) -> Any:
        """Runs it."""
        rest = [None if i in self.reached else value for i, value in enumerate(values)]
        return self.finish(list(_Bound(self.program, rest)(*(values[i] for i in self.reached))))


class Transforms:
    """What is compiled of one function for calls inside transforms.

    Args:
        fn: The function.
        compile: Compiles programs.
    """

    def __init__(self, fn: Callable[..., Any], compile: Compile) -> None:
        self._fn = fn
        self._compile = compile
        self._known: dict[tuple[Specialization, tuple[int, ...]], Transformable | None] = {}
        self._places: dict[Specialization, list[Place]] = {}

    def prepared(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        specialization_for: Callable[[tuple[Any, ...], dict[str, Any]], Specialization],
    ) -> Callable[[], Any] | None:
        """What runs a call through compiled graphs, or None where the function itself has to run.

        Args:
            args: The arguments.
            kwargs: The keyword arguments.
            specialization_for: What a call without transforms would run.
        """
        if not _torch.takes_functions_through_transforms():
            return None
        found = self._seen_before(args, kwargs)
        if found is None:
            try:
                found = self._looked_at(args, kwargs, specialization_for)
            except Exception:  # what eager mode makes of it, it says itself
                return None
        made, values = found
        return None if made is None else lambda: made(values)

    def _seen_before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Found | None:
        """What serves a call of which only arguments are transformed, like one before it: guards ask for the rest."""
        leaves, treespec = flatten((args, kwargs))
        memo: dict[int, Any] = {}
        for x in leaves:
            if isinstance(x, torch.Tensor) and id(x) not in memo:
                if _torch.is_traceable_wrapper_subclass(x) or (plain := _torch.without_levels(x)) is None:
                    return None
                memo[id(x)] = plain
        stand_ins = [memo.get(id(x), x) for x in leaves]
        call: Any = optree.tree_unflatten(treespec, stand_ins)
        with _torch.without_transforms():
            modes = global_state()
            known = list(self._places)
            fits = (s for s in known if s.entry.call(*call, stand_ins, treespec, modes, check_only=True) is not MISS)
            specialization = next(fits, None)
        places = self._places.get(specialization) if specialization is not None else None
        if specialization is None or places is None:
            return None
        values = [leaves[p.leaf] if isinstance(p, ArgumentPlace) else _now_at(p) for p in places]
        key = specialization, _reached(values)
        return (self._known[key], values) if key in self._known else None

    def _looked_at(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        specialization_for: Callable[[tuple[Any, ...], dict[str, Any]], Specialization],
    ) -> _Found:
        """What serves any call, compiled for it if need be."""
        arguments = Arguments.of(self._fn, args, kwargs)
        stand_ins = _stand_ins(arguments)
        if stand_ins is None:
            return None, ()
        reached = _reached(arguments.values)
        with one_at_a_time, _torch.without_transforms(), arguments.replaced(stand_ins) as call:
            specialization = specialization_for(*call)
            key = specialization, reached
            if key not in self._known:
                if len(self._known) >= _LIMIT:
                    self._known.clear()
                    self._places.clear()
                recorded = Arguments.of(self._fn, *call)
                self._known[key] = self._transformable(specialization, recorded, reached)
                places = [recorded.place_of(i)[0] for i in range(len(recorded.values))]
                if not any(isinstance(place, HeldPlace) for place in places):
                    self._places[specialization] = places
            return self._known[key], arguments.values

    def _transformable(
        self, specialization: Specialization, arguments: Arguments, reached: tuple[int, ...]
    ) -> Transformable | None:
        taken = [specialization.signature.inputs[i].meta for i in reached]
        if not taken or not _is_pure(specialization) or not all(isinstance(meta, PlainTensorMeta) for meta in taken):
            return None
        outputs = specialization.signature.outputs
        computed = [i for i, output in enumerate(outputs) if isinstance(output, Value)]
        again = RecordedCall.of(self._fn, arguments)
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        grad, count = specialization.signature.grad_modes[0], len(arguments.values)

        def run(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = list(rest)
            for i, value in zip(reached, values, strict=True):
                found[i] = value
            with torch.set_grad_enabled(grad):
                results = again(found)
            return tuple(results[i] for i in computed)

        assert len(specialization.signature.inputs) == count
        return Transformable(reached, Program(run, self._compile, name), _finish(specialization, computed))


_Found = tuple[Transformable | None, Sequence[torch.Tensor]]
"""What serves a call, and its tensors."""


def _now_at(place: Place) -> torch.Tensor:
    assert isinstance(place, ModulePlace)
    found: torch.Tensor = getattr(place.module, place.table)[place.name]
    return found


def _reached(values: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """Which tensors a transform reaches, or a gradient that is asked for when it is over."""
    return tuple(i for i, x in enumerate(values) if x.requires_grad or _torch.without_levels(x) is not x)


def _stand_ins(arguments: Arguments) -> list[torch.Tensor] | None:
    """Tensors without levels that look like those of a call; None where there are none for a level inside a wrapper."""
    found = [_torch.without_levels(value) for value in arguments.values]
    leaves = arguments.plan.unwrap(arguments.values)
    for slot in arguments.plan.index_map.slots:
        leaf = leaves[slot.flat]
        if slot.path and isinstance(leaf, torch.Tensor) and _torch.without_levels(leaf) is not leaf:
            return None
    stand_ins = [x for x in found if x is not None]
    return stand_ins if len(stand_ins) == len(found) else None


def _is_pure(specialization: Specialization) -> bool:
    """Whether a call computes new dense tensors of its tensors, the same each time, and does nothing else."""
    signature = specialization.signature
    assumptions, outcome = signature.assumptions, signature.outcome
    if assumptions.looks or assumptions.read or assumptions.runtime_asserts or outcome.changes or outcome.objects:
        return False
    if signature.mutations != Mutations() or signature.views or signature.intermediate_bases or signature.made_leaves:
        return False
    graph = specialization.graphs.forward
    if any(draws(node) for node in graph.graph.nodes):
        return False
    constants = [getattr(graph, node.target) for node in graph.graph.find_nodes(op="get_attr")]
    if any(isinstance(x, torch.Tensor) and _torch.without_levels(x) is not x for x in constants):
        return False
    return any(isinstance(x, Value) for x in signature.outputs) and all(map(_is_new, signature.outputs))


def _is_new(output: object) -> bool:
    if isinstance(output, Constant):
        return not isinstance(output.value, torch.Tensor)
    if not isinstance(output, Value) or not isinstance(output.meta, PlainTensorMeta):
        return False
    return not any(isinstance(leaf, InputLeaf | AliasOfLeaf) for leaf in output.leaves)


def _finish(specialization: Specialization, computed: Sequence[int]) -> Callable[[list[Any]], Any]:
    source = Source("finish", "results", "Gives flat results their structure.")
    position = {output: at for at, output in enumerate(computed)}
    results = []
    for i, output in enumerate(specialization.signature.outputs):
        constant = output.value if isinstance(output, Constant) else None
        results.append(f"results[{position[i]}]" if i in position else source.const(constant, "constant"))
    source.line(f"return {emit_finish(source, specialization.signature.outcome, [], results)}")
    return source.build()
