"""What a run costs as a function of one size: the batch, or the length of sequences."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import optree
import torch

from subclass_aot.cost.profiling.figures import Figures
from subclass_aot.cost.profiling.timeline import Timeline
from subclass_aot.cost.profiling.without_data import PyTree
from subclass_aot.cost.profiling.words import amount
from subclass_aot.errors import DataDependentError, ProfileError

_NO_SIZE = """No tensor among the arguments has a dim {dim}, so there is no size to change.
  Instead: pass the data as tensors: sa.profile(step, model, batch)."""

Polynomial = tuple[Fraction, ...]
"""Coefficients, the constant first."""


class LargestSize(int):
    """The largest size that fits.

    Attributes:
        untried: Why no run has tried it, so that it is what a formula says; "" where runs have.
    """

    untried: str = ""

    def __str__(self) -> str:
        """Returns the number, and that it was not tried if that is so."""
        number = int.__repr__(self)
        return f"{number} (by the formula; no run has tried it: {self.untried})" if self.untried else number


@dataclass
class Formula:
    """The peak of memory and the products of a run as functions of one size.

    Each moment's bytes are a polynomial in the size, and the peak is the largest of them: a line each for the batch,
    a parabola for the length. So no symbols are needed, only a few runs. What kernels on CUDA take while they run is
    not in it, and `largest` counts it.

    Attributes:
        letter: What the size is called.
        runs: By size, the reports that it was found from.
        memory: The polynomials of all moments; empty where runs at different sizes do different things.
        products: That of the floating-point operations; None likewise.
        reason: Why there are none; "" where there are.
    """

    letter: str
    run: Callable[[int], Figures]
    runs: dict[int, Figures] = field(default_factory=dict)
    memory: frozenset[Polynomial] = frozenset()
    products: Polynomial | None = None
    reason: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether runs at all sizes that were tried do the same, so that the formula holds."""
        return not self.reason

    def peak(self, size: int) -> int:
        """Returns the peak in bytes at a size; where there is no formula, from a run."""
        if not self.is_exact:
            return self._report(size).peak
        return int(max(_value(polynomial, size) for polynomial in self.memory))

    def flops(self, size: int) -> int:
        """Returns the floating-point operations at a size, likewise."""
        return int(self._report(size).flops()) if self.products is None else int(_value(self.products, size))

    def largest(self, memory: int) -> LargestSize:
        """Returns the largest size whose peak is not over `memory` bytes; 0 if there is none.

        What a formula says is tried by runs, since an allocator rounds up. A run may need values that nobody knows at
        that size: then the formula alone says it, and the result has the reason.
        """
        low, high = 0, 1
        while self.peak(high) <= memory:
            low, high = high, 2 * high
            if high > 1 << 62:
                raise ProfileError(f"The peak does not depend on {self.letter}, so there is no largest one.")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.peak(middle) <= memory else (low, middle)
        try:
            return LargestSize(self._tried(low, memory))
        except DataDependentError as error:
            if not self.is_exact:
                raise
            found = LargestSize(low)
            found.untried = str(error).partition("\n")[0]
        return found

    def _tried(self, size: int, memory: int) -> int:
        """Returns the largest size that fits, by runs near one that is nearly it."""
        fits, over = 0, 0  # 0: no size is known to be too large
        size = max(size, 1)
        while not over or over - fits > 1:
            rest = memory - self._report(size).peak
            fits, over = (size, over) if rest >= 0 else (fits, size)
            slope = max(self.peak(size + 1) - self.peak(size), 1)
            size += max(rest // slope, 1) if rest >= 0 else rest // slope
            if size <= fits or over and size >= over:
                size = (fits + over) // 2
        return fits

    def _report(self, size: int) -> Figures:
        if size not in self.runs:
            self.runs[size] = self.run(size)
        return self.runs[size]

    def __repr__(self) -> str:
        return f"<Formula: {str(self).replace(chr(10), ', ')}>"

    def __str__(self) -> str:
        """Returns the formulas as text."""
        if self.products is None:
            return f"There is no formula in {self.letter}: {self.reason}."
        shown = [_in_words(polynomial, self.letter, "B") for polynomial in _largest_somewhere(self.memory)]
        peak = shown[0] if len(shown) == 1 else f"max({', '.join(shown)})"
        return f"peak = {peak}\nproducts = {_in_words(self.products, self.letter, 'FLOP')}"


def formula_of(report: Figures, letter: str = "B", dim: int | None = None) -> Formula:
    """Returns the costs of a program as functions of a size of its data.

    The tensors among its arguments change whose size in that dim is that of the first one.

    Args:
        report: Of the program, as `profile` gives it.
        letter: What the size is called: "B" for the batch, in which memory is a line; any other, as "S" for the
            length of sequences, in which it is a parabola.
        dim: Which dim it is; the first for "B", the second for others if left out.

    Raises:
        ProfileError: The report is of a block, or there is no such tensor.
    """
    again = report.again()
    which = dim if dim is not None else 0 if letter == "B" else 1
    degree = 1 if letter == "B" else 2

    def run(size: int) -> Figures:
        found: Figures = again.report(lambda tree: resized(tree, which, size))
        return found

    sizes = [8 * (i + 1) for i in range(degree + 2)]
    found = Formula(letter, run)
    curves = _curves(found, sizes)
    if any(events != curves[0][1] for _, events, _ in curves):
        # The accelerator adds up gradients in place, as torch does, but not in the first run at a size: once more.
        found.runs.clear()
        curves = _curves(found, sizes)
    if any(events != curves[0][1] for _, events, _ in curves):
        counts = ", ".join(str(len(events)) for _, events, _ in curves)
        found.reason = (
            f"at {letter} = {', '.join(map(str, sizes))} different things are made and freed ({counts} events)"
        )
        return found
    products = _fitted(sizes, [flops for _, _, flops in curves], degree)
    memory = {_fitted(sizes, moment, degree) for moment in zip(*(curve for curve, _, _ in curves), strict=True)}
    if products is None or None in memory:
        found.reason = f"it grows faster than {letter}{'^2' if degree == 2 else ''}, or in steps"
        return found
    found.products, found.memory = products, frozenset(each for each in memory if each is not None)
    return found


def _curves(formula: Formula, sizes: Sequence[int]) -> list[tuple[list[int], list[int], int]]:
    """Returns what runs at some sizes did: the bytes after each event, which allocation each changes, and products."""
    reports = [formula._report(size) for size in sizes]
    return [(*_steady(each.timeline), each.flops()) for each in reports]


def _steady(timeline: Timeline) -> tuple[list[int], list[int]]:
    """Returns the bytes after each event, and of each which allocation it changes.

    What kernels on CUDA take while they run is left out: it is there at some sizes alone, and grows in steps.
    """
    numbers: dict[int, int] = {}
    now, curve, events = timeline.before(), [timeline.before()], []
    for (i, change), (following, _) in itertools.pairwise([*timeline.events, (-1, 0)]):
        made = timeline.allocations[i]
        if made.device.type == "cuda" and made.kinds[0][1] == "workspace" and (following == i or change < 0):
            continue
        now += change
        curve.append(now)
        events.append(numbers.setdefault(i, len(numbers)))
    return curve, events


def resized(tree: PyTree, dim: int, size: int) -> PyTree:
    """Returns arguments of another size.

    Args:
        tree: The program, its arguments, its keyword arguments and its optimizer.
        dim: The dim that changes.
        size: Its new size.

    Raises:
        ProfileError: No tensor among the arguments has such a dim.
    """
    program, args, kwargs, *rest = tree
    data: PyTree = (args, kwargs)
    leaves, structure = optree.tree_flatten(data, none_is_leaf=True)
    first = next((x for x in leaves if _is_data(x, dim)), None)
    if first is None:
        raise ProfileError(_NO_SIZE.format(dim=dim))
    old = first.shape[dim]
    for i, x in enumerate(leaves):
        if _is_data(x, dim) and x.shape[dim] == old and size != old:
            shape = [*x.shape[:dim], size, *x.shape[dim + 1 :]]
            if x.is_floating_point() or x.is_complex():
                leaves[i] = torch.empty(shape, dtype=x.dtype, device=x.device, requires_grad=x.requires_grad)
            else:  # a mask, which the run may know: again and again
                leaves[i] = x.index_select(dim, torch.arange(size, device=x.device) % old)
    data = optree.tree_unflatten(structure, leaves)
    return (program, *data, *rest)


def _is_data(value: object, dim: int) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter) and value.dim() > dim


def _fitted(sizes: Sequence[int], values: Sequence[int], degree: int) -> Polynomial | None:
    """Returns the polynomial through the first values; None if it is not near the last one, which it has to tell.

    An allocator rounds each tensor up, so it may be off by a thousandth.
    """
    xs, ys = sizes[: degree + 1], values[: degree + 1]
    found = [Fraction(0)] * (degree + 1)
    for i, x in enumerate(xs):  # Lagrange
        basis, scale = [Fraction(1)], Fraction(1)
        for j, other in enumerate(xs):
            if i != j:
                shifted = [Fraction(0), *basis]
                basis = [a - other * b for a, b in zip(shifted, [*basis, Fraction(0)], strict=True)]
                scale *= x - other
        for k, coefficient in enumerate(basis):
            found[k] += coefficient * ys[i] / scale
    polynomial = tuple(found)
    last = values[-1]
    return polynomial if abs(_value(polynomial, sizes[-1]) - last) <= max(last / 1000, 4096) else None


def _value(polynomial: Polynomial, size: int) -> Fraction:
    found = Fraction(0)
    for coefficient in reversed(polynomial):
        found = found * size + coefficient
    return found


def _largest_somewhere(polynomials: frozenset[Polynomial]) -> list[Polynomial]:
    """Returns those that are the largest at some size."""
    return list(dict.fromkeys(max(polynomials, key=lambda p: _value(p, 1 << k)) for k in range(41)))


def _in_words(polynomial: Polynomial, letter: str, unit: str) -> str:
    powers = ["", f"*{letter}", f"*{letter}^2"]
    parts = [f"{amount(float(c), unit)}{power}" for c, power in zip(polynomial, powers, strict=False) if c]
    return " + ".join(parts) or amount(0, unit)
