"""Sizes of which somebody else has made symbols: `torch.compile`, which guards what is assumed of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.engine.call import Arguments
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta import MetaTensor, Spec, new_leaf
from subclass_aot.meta.symbols import Number, Symbols, is_symbolic, key_of


@dataclass(frozen=True, slots=True, eq=False)
class GivenSizes:
    """The sizes of a call, as the tracer has them that this trace is a part of.

    Attributes:
        solver: The solver of their symbols.
        examples: By the path of an argument, a tensor of its class with these sizes, or a number.
    """

    solver: Any
    examples: Mapping[str, Any]

    def __bool__(self) -> bool:
        return any(is_symbolic(n) for example in self.examples.values() for n in _numbers(example))

    def without(self, paths: Collection[str]) -> GivenSizes:
        """Makes every number of some arguments known, which that tracer then guards; of all if none is named."""
        known = {path for path in self.examples if not paths or any(_is_inside(p, path) for p in paths)}
        for path in known:
            for number in _numbers(self.examples[path]):
                int(number)
        return GivenSizes(self.solver, {p: x for p, x in self.examples.items() if p not in known})

    def fakes(self, arguments: Arguments) -> tuple[list[Any], Symbols]:
        """Makes for each tensor of a call one of its class without data and with these sizes, and says whose they are.

        Args:
            arguments: The call.
        """
        paths = map(arguments.path_of, range(len(arguments.values)))
        fakes = [_fake(value, self.examples.get(path)) for path, value in zip(paths, arguments.values, strict=True)]
        return fakes, Symbols(self.solver)


def symbols_of(example: object) -> set[Any]:
    """Returns the symbols that the sizes of a tensor are, outer and inner ones; or those in a number.

    An expression of several is none of them.
    """
    found: set[Any] = set()
    for number in _numbers(example):
        if is_symbolic(number):
            expression = key_of(number)
            found |= expression.free_symbols if expression.is_Symbol or not isinstance(example, torch.Tensor) else set()
    return found


def _is_inside(path: str, argument: str) -> bool:
    return path.startswith(argument) and path[len(argument) : len(argument) + 1] in ("", ".", "[")


def _numbers(example: object) -> Iterator[Number]:
    """Yields the sizes and strides of an example, outer and inner ones; or itself, if it is a number."""
    if not isinstance(example, torch.Tensor):
        yield example  # type: ignore[misc]
        return
    for part in (example, *FlattenPlan.leaves_of(example)):
        if isinstance(part, torch.Tensor):
            yield from (*part.size(), *part.stride())
        elif is_symbolic(part):
            yield part


def _fake(value: torch.Tensor, example: object) -> Any:
    if example is None:
        return MetaTensor.like(value.detach())
    if isinstance(example, torch.SymInt):  # what brings a number into a graph
        spec = Spec.of(value)
        return new_leaf(Spec.make((example, 0), (1, 1), 0, spec.dtype, spec.device, spec.layout))
    plan, leaves = FlattenPlan.read([example])
    real = iter([x for x in FlattenPlan.leaves_of(value) if isinstance(x, torch.Tensor)])
    return plan.wrap([_leaf(x, next(real)) if isinstance(x, torch.Tensor) else x for x in leaves])[0]


def _leaf(example: torch.Tensor, real: torch.Tensor) -> MetaTensor:
    size, stride = tuple(example.size()), example.stride()
    return new_leaf(Spec.make(size, stride, real.storage_offset(), real.dtype, real.device, real.layout))
