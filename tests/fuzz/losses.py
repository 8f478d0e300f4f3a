"""Random programs of several results that go backward one after the other, in any order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.trace.parts import parts_of
from subclass_aot.testing import difference
from tests.fuzz import custom_functions

STATEMENTS = (
    "v.append({0} * {1})",
    "v.append({0} * {1})",
    "v.append({0}.exp())",
    "v.append({0}.sin())",
    "v.append({0} + {1})",
    "v.append({0} - 1)",
    "v.append({0}.t())",
    "v.append({0}.detach() * {1})",
    "v.append({0}.detach().sin())",
    "v.append({0} @ {1})",
    "v.append({0}.sum() * {1})",
    "v.append({0}.clone().mul_({1}))",
    "v += ({0} * 2).unbind()[0] * {1}, {0}.cos()",
    "v += {0}.split(2)[0].sum() * {1}, {1}[:, :1] * {0}",
    "v.append(checkpoint(lambda x: x.sin().exp(), {0}, use_reentrant=False))",
    "v += checkpoint(lambda x, y: (x.sin(), (y * y).exp()), {0}, {1}, use_reentrant=False)",
    "v.append(dropout({0}))",
    "v.append(own.reverse({0}))",
    "v += own.Both.apply({0})",
    "v.append(own.Itself.apply({0} * {1}))",
    "{0}.register_hook(lambda gradient: gradient * 2) if {0}.grad_fn is not None else None",
    "with torch.no_grad(): v.append({0} * {1})",
    "h = {0}.clone(); h.mul_(2); v.append(h.view(-1)); v.append(h * {1})",
    "write({0}, {1})",
)
"""Lines of a program of a list `v`, which begins with the arguments."""

KINDS: dict[str, Callable[[], Any]] = {
    "dense": lambda: _numbers(),
    "wrapper": lambda: TwoTensor(_numbers(), _numbers()),
    "nested": lambda: TwoTensor(TwoTensor(_numbers(), _numbers()), TwoTensor(_numbers(), _numbers())),
}


@dataclass(frozen=True)
class DrawnLosses:
    """A program, and what is done with its results.

    Attributes:
        kind: The class of its arguments: one of `KINDS`.
        given: Whether each of the arguments is a "leaf", "computed" or "frozen".
        statements: Its lines.
        order: Which result goes backward next, from the last on; and whether its graph is retained.
        together: How many of them go backward at once, first.
        options: What `aot_compile` is given.
    """

    kind: str
    given: tuple[str, ...]
    statements: tuple[str, ...]
    order: tuple[tuple[int, bool], ...]
    together: int = 0
    options: tuple[str, ...] = ()

    @property
    def function(self) -> Callable[..., Any]:
        """The program."""
        scope: dict[str, Any] = {
            "__name__": __name__,
            "torch": torch,
            "checkpoint": checkpoint,
            "own": custom_functions,
        }
        scope |= {"dropout": torch.nn.functional.dropout, "write": _write}
        lines = "".join(f"    {line}\n" for line in self.statements)
        exec(f"def program(*v):\n    v = [*v]\n{lines}    return v[{len(self.given)}:]\n", scope)
        return scope["program"]  # type: ignore[no-any-return]


def losses() -> st.SearchStrategy[DrawnLosses]:
    """Draws programs."""
    operand = st.integers(0, 9).map(lambda i: f"v[{i} % len(v)]")
    statement = st.builds(lambda text, *two: text.format(*two), st.sampled_from(STATEMENTS), operand, operand)
    return st.builds(
        DrawnLosses,
        st.sampled_from(["dense", "dense", *KINDS]),
        st.lists(st.sampled_from(("leaf", "leaf", "computed", "frozen")), min_size=2, max_size=3).map(tuple),
        st.lists(statement, min_size=2, max_size=6).map(tuple),
        st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3).map(lambda n: not n)), min_size=2, max_size=6).map(
            tuple
        ),
        st.sampled_from((0, 0, 0, 2)),
        st.sampled_from(((), (), ("dynamic",), ("min_cut",))),
    )


def check_losses(drawn: DrawnLosses, compiler: Callable[[Any], Callable[..., Any]] | None = None) -> None:
    """Compares the results of a program, and the gradients after each backward, with those of eager mode.

    Eager mode refuses a backward through what was released. Nothing is compared from there on: of what a compiled
    backward does not need, it keeps nothing.

    Args:
        drawn: The program.
        compiler: Compiles it; `aot_compile` where it is left out.

    Raises:
        AssertionError: They differ.
    """
    options: dict[str, Any] = {}
    if "dynamic" in drawn.options:
        options["dynamic"] = True
    if "min_cut" in drawn.options:
        options["partition_fn"] = min_cut_rematerialization_partition
    function = drawn.function
    compiled = aot_compile(function, **options) if compiler is None else compiler(function)
    for size in (4, 4, 6):
        try:
            expected = _seen(drawn, function, size)
        except Exception:  # the program makes no sense
            return
        found = _seen(drawn, compiled, size, len(expected))
        for i, (one, other) in enumerate(zip(expected, found, strict=True)):
            assert not (text := _difference(one, other)), f"size {size}, step {i}: {text}"


def _seen(drawn: DrawnLosses, function: Callable[..., Any], size: int, steps: int | None = None) -> list[Any]:
    """Returns what a call gives, and the gradients after each backward: of eager mode until the first that it refuses,
    or until one that another of its part would make impossible for one node.

    Args:
        drawn: The program.
        function: It, or what was compiled of it.
        size: The size of its arguments.
        steps: How many of these steps are looked at; None for eager mode.
    """
    global _SIZE
    _SIZE = size
    torch.manual_seed(size)
    leaves = [KINDS[drawn.kind]().requires_grad_(how != "frozen") for how in drawn.given]
    given = [x * 1 if how == "computed" else x for x, how in zip(leaves, drawn.given, strict=True)]
    starts = {x.grad_fn for x in given}
    with warnings.catch_warnings():  # a hook on an input is registered by the function itself
        warnings.filterwarnings("ignore", "(?s).*registers a gradient hook on this input")
        results = [*function(*given), *(x for x in given if x.grad_fn not in starts)]
    ends = [x for x in results if x.requires_grad and not x.is_leaf]
    seen: list[Any] = [[x.detach().clone() for x in results]]
    parts = parts_of(ends, starts) if steps is None and ends else ()
    used: set[int] = set()
    for number in range(0 if not ends else len(drawn.order) if steps is None else steps - 1):
        first = number == 0 and drawn.together
        chosen = [i % len(ends) for i, _ in drawn.order[: drawn.together if first else number + 1]]
        chosen = list(dict.fromkeys(chosen)) if first else chosen[-1:]
        part = {i for i in chosen for each in parts if i in each for i in each}
        if steps is None and used & part:
            break
        retain = drawn.order[number][1]
        used |= set() if retain else part
        tangents = [torch.full_like(ends[i].detach(), 1 + i) for i in chosen]
        try:
            torch.autograd.backward([ends[i] for i in chosen], tangents, retain_graph=retain)
        except RuntimeError:
            if steps is not None:
                raise
            break
        seen.append([None if x.grad is None else x.grad.detach().clone() for x in leaves])
    return seen


_SIZE = 4


def _numbers() -> torch.Tensor:
    return torch.rand(_SIZE, _SIZE, dtype=torch.float64) / 2


def _write(x: torch.Tensor, y: torch.Tensor) -> None:
    """Writes into a tensor that autograd lets be written."""
    if not (x.is_leaf and x.requires_grad):
        x.mul_(y if y is not x else 2)


def _difference(one: Sequence[Any], other: Sequence[Any]) -> str:
    if len(one) != len(other):
        return f"{len(one)} expected, {len(other)} got"
    found = (difference(x, y, strides=False) for x, y in zip(one, other, strict=True))
    return next(filter(None, found), "")
