"""The rows of a benchmark of a class: its own methods, operators, and compiled calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.engine.compile import aot_compile
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.kit.wrapper import plain_tangent
from subclass_aot.testing.benchmark.measure import Budget, Side, compare
from subclass_aot.testing.benchmark.subject import arguments_of
from subclass_aot.testing.progress import tell

aten: Any = torch.ops.aten
COUNTS = (1, 10, 100)
_OURS, _DENSE = "class", "dense"

Work = tuple[Callable[..., object], Sequence[object]]
"""A function and its arguments."""


@dataclass(frozen=True)
class Row:
    """One thing that was measured, or why it was not.

    Args:
        group: "class", "operator", "null graph" or "eager backend".
        name: What was done.
        wrappers: On how many tensors.
        us: Median microseconds of a call.
        dense_us: The same on dense tensors of the same outer shape, where there is something to compare with.
        refused: The first line of the reason why it cannot be done; else "".
    """

    group: str
    name: str
    wrappers: int
    us: float | None = None
    dense_us: float | None = None
    refused: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times as long it takes as on dense tensors."""
        return None if not self.us or not self.dense_us else self.us / self.dense_us


def dense_like(tensor: Tensor) -> Tensor:
    """Returns a dense tensor of the size, dtype and device of a wrapper."""
    return torch.ones(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def measured(group: str, name: str, wrappers: int, ours: Work, dense: Work | None, budget: Budget) -> Row:
    """Times something beside its dense counterpart, if both can be done."""
    tell(f"measures {group}: {name}, {wrappers} wrappers")
    try:
        ours[0](*ours[1])
    except Exception as error:  # of the class
        pass_on_interruption(error)
        return Row(group, name, wrappers, refused=first_line(error))
    sides = {_OURS: Side(ours[0], tuple(ours[1]))}
    if dense is not None:
        try:
            dense[0](*dense[1])
            sides[_DENSE] = Side(dense[0], tuple(dense[1]))
        except (RuntimeError, TypeError) as error:  # torch has no such operator for this dtype
            pass_on_interruption(error)
    times = compare(sides, budget)
    return Row(group, name, wrappers, times.median_us(_OURS), times.median_us(_DENSE) if _DENSE in sides else None)


def parts(make: Callable[[], Tensor], budget: Budget) -> Iterator[Row]:
    """Yields the methods of the class, and our wrap and unwrap; beside making a tensor stands a dense `detach`."""
    tensor: Any = make().detach()
    one = Tensor.detach, (dense_like(tensor),)
    cls = type(tensor)
    try:
        held = arguments_of(tensor)
        yield measured("class", "constructor", 1, (lambda: cls(**held), ()), one, budget)
    except LookupError as error:
        yield Row("class", "constructor", 1, refused=str(error.args[0]))
    yield measured("class", "__tensor_flatten__", 1, (tensor.__tensor_flatten__, ()), None, budget)
    names, context = tensor.__tensor_flatten__()
    inner = {name: getattr(tensor, name) for name in names}
    again = inner, context, tensor.size(), tensor.stride()
    yield measured("class", "__tensor_unflatten__", 1, (cls.__tensor_unflatten__, again), one, budget)
    plan = FlattenPlan.of([tensor])
    yield measured("class", "our unwrap", 1, (plan.unwrap, ([tensor],)), None, budget)
    yield measured("class", "our wrap", 1, (plan.wrap, (plan.unwrap([tensor]),)), one, budget)


_ON_MATRICES = {"t", "mm", "addmm"}
OPERATORS: Mapping[str, tuple[Any, Callable[[Any, Any], object]]] = {
    "t": (aten.t.default, lambda w, g: w.t()),
    "mm": (aten.mm.default, lambda w, g: torch.mm(_row(w), w)),
    "addmm": (aten.addmm.default, lambda w, g: torch.addmm(_row(g)[0, :1], _row(w), w)),
    "detach": (aten.detach.default, lambda w, g: w.detach()),
    "clone": (aten.clone.default, lambda w, g: w.clone()),
    "zeros_like": (aten.zeros_like.default, lambda w, g: torch.zeros_like(w)),
    "add": (aten.add.Tensor, lambda w, g: w + g),
    "mul": (aten.mul.Tensor, lambda w, g: w * 2),
    "div": (aten.div.Tensor, lambda w, g: w / 2),
    "sqrt": (aten.sqrt.default, lambda w, g: w.sqrt()),
    "add_": (aten.add_.Tensor, lambda w, g: w.add_(g, alpha=0)),
    "mul_": (aten.mul_.Tensor, lambda w, g: w.mul_(1)),
    "lerp_": (aten.lerp_.Scalar, lambda w, g: w.lerp_(g, 0)),
    "addcmul_": (aten.addcmul_.default, lambda w, g: w.addcmul_(g, g, value=0)),
    "addcdiv_": (aten.addcdiv_.default, lambda w, g: w.addcdiv_(g, g, value=0)),
    "zero_": (aten.zero_.default, lambda w, g: w.zero_()),
}
"""What a linear layer, its backward and AdamW need: the operator, and a call of it on a weight and a gradient."""


def _row(like: Tensor) -> Tensor:
    return torch.ones(1, like.shape[0], dtype=like.dtype, device=like.device)


def operators(make: Callable[[], Tensor], budget: Budget) -> Iterator[Row]:
    """Yields each operator, measured on a new tensor, outside of autograd."""
    for name, (_, call) in OPERATORS.items():
        with torch.no_grad():
            w = make().detach()
            if name in _ON_MATRICES and w.dim() != 2:
                continue
            dense = dense_like(w), dense_like(w)
            try:
                gradient = torch.ones_like(plain_tangent(w))
            except Exception as error:  # of the class, which has no plain tangent
                pass_on_interruption(error)
                gradient = dense_like(w)
            yield measured("operator", name, 1, (call, (w, gradient)), (call, dense), budget)


def calls(make: Callable[[], Tensor], budget: Budget, counts: Sequence[int] = COUNTS) -> Iterator[Row]:
    """Yields a compiled `[x * 2 for x in xs]`, with graphs that compute nothing and with the backend "eager"."""
    compilers: dict[str, str | Callable[..., Any]] = {"null graph": null_compiler, "eager backend": "eager"}
    for group, compiler in compilers.items():
        for count in counts:
            with torch.no_grad():
                xs = [make().detach() for _ in range(count)]
                work = aot_compile(_double, fw_compiler=compiler), xs
                dense = aot_compile(_double, fw_compiler=compiler), [dense_like(x) for x in xs]
                yield measured(group, "[x * 2 for x in xs]", count, work, dense, budget)


def _double(*xs: Tensor) -> list[Tensor]:
    return [x * 2 for x in xs]


def null_compiler(graph: fx.GraphModule, inputs: list[object]) -> Callable[..., Sequence[object]]:
    """Compiles a graph to a function that computes its results once, and gives the same ones at each call."""
    results: list[Sequence[object]] = []

    def run(*inputs: object) -> Sequence[object]:
        if not results:
            results.append(tuple(graph.forward(*inputs)))
        return results[0]

    return run
