"""A call inside a transform: which program it is, and what the program works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption
from subclass_aot.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace, Place, RecordedCall, flatten
from subclass_aot.codegen import Source
from subclass_aot.flatten import PlainTensorMeta
from subclass_aot.guards import MISS, global_state
from subclass_aot.options import Options
from subclass_aot.outcome import emit_finish
from subclass_aot.outputs import Constant, Value
from subclass_aot.specializations import Specialization
from subclass_aot.trace import one_at_a_time
from subclass_aot.transforms.bound import Bound
from subclass_aot.transforms.halves import halves_of
from subclass_aot.transforms.program import Compile, Program
from subclass_aot.transforms.pure import is_pure

_LIMIT = 64
"""For how many signatures programs are kept."""


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
        return self.finish(list(Bound(self.program, rest)(*(values[i] for i in self.reached))))


class Transforms:
    """What is compiled of one function for calls inside transforms.

    Args:
        fn: The function.
        options: Its options.
        compile: Compiles programs, with these.
    """

    def __init__(self, fn: Callable[..., Any], options: Options, compile: Compile) -> None:
        self._fn = fn
        self._options = options
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
        try:
            made, values = self._seen_before(args, kwargs) or self._looked_at(args, kwargs, specialization_for)
        except Exception as error:  # what eager mode makes of it, it says itself
            pass_on_interruption(error)
            return None
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
        signature = specialization.signature
        taken = [signature.inputs[i].meta for i in reached]
        are_dense = all(isinstance(meta, PlainTensorMeta) for meta in taken)
        if not taken or not are_dense or not is_pure(signature, specialization.graphs.forward):
            return None
        outputs = signature.outputs
        computed = [i for i, output in enumerate(outputs) if isinstance(output, Value)]
        again = RecordedCall.of(self._fn, arguments)
        name = getattr(self._fn, "__name__", type(self._fn).__name__)
        grad, count = signature.grad_modes[0], len(arguments.values)

        def run(rest: list[Any], *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            found = list(rest)
            for i, value in zip(reached, values, strict=True):
                found[i] = value
            with torch.set_grad_enabled(grad):
                results = again(found)
            return tuple(results[i] for i in computed)

        assert len(signature.inputs) == count
        # Halves are for known sizes; what serves many computes forward again.
        halve = None if signature.assumptions.symbols is not None else partial(halves_of, self._options)
        return Transformable(reached, Program(run, self._compile, name, halve), _finish(specialization, computed))


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


def _finish(specialization: Specialization, computed: Sequence[int]) -> Callable[[list[Any]], Any]:
    source = Source("finish", "results", "Gives flat results their structure.")
    position = {output: at for at, output in enumerate(computed)}
    results = []
    for i, output in enumerate(specialization.signature.outputs):
        constant = output.value if isinstance(output, Constant) else None
        results.append(f"results[{position[i]}]" if i in position else source.const(constant, "constant"))
    source.line(f"return {emit_finish(source, specialization.signature.outcome, [], results)}")
    return source.build()
