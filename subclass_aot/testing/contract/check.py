"""`check_subclass`: is a tensor subclass right? All clauses of the contract, tried on one class."""

from __future__ import annotations

import contextlib
import difflib
import functools
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import torch

from subclass_aot.testing.contract import (
    compilation,
    context,
    drawn_calls,
    flatten,
    gradients,
    law,
    life,
    metadata,
    operators,
    processes,
    saving,
    tracing,
    training,
    views,
    writes,
)
from subclass_aot.testing.contract.arguments import falsified
from subclass_aot.testing.contract.causes import causes_of
from subclass_aot.testing.contract.clause import Clause, is_fault, settled
from subclass_aot.testing.contract.finding import Finding
from subclass_aot.testing.contract.report import Report
from subclass_aot.testing.contract.trial import Make, Reading, Trial, Values

Expected = Mapping[tuple[int, str], str]

_SUBJECTS = (
    law, metadata, flatten, context, views, writes, operators, drawn_calls, tracing, gradients, compilation, saving,
    training, life, processes,
)  # fmt: skip
CLAUSES: tuple[Clause, ...] = tuple(
    sorted((clause for subject in _SUBJECTS for clause in subject.CLAUSES), key=lambda clause: clause.number)
)
"""The contract, by number."""


class CheckSubclass:
    """Checks that a tensor subclass does what a traceable wrapper subclass owes, clause by clause.

    The class may be anybody's. What its tensors mean is given by readings, functions to dense tensors; most clauses say
    that an operator commutes with each of them.

    Args:
        make: Gives a new tensor, the same values each time. Floating-point values and two dims of different sizes
            above 1 let most clauses apply. Sizes, dtypes, seeds and bools that are defaults of its parameters are
            varied.
        readings: What a tensor means. The default is the first of `to_plain`, `dequantize`, `full_tensor` and
            `get_original_weight` that the class has; else every inner tensor, if all have the size of the tensor.
        only: The numbers of the clauses to try; all if left out.
        expected: For clauses that the class does not keep since it means something else, the reason, by number and
            name. One that is kept is reported.
        quick: Whether to leave out what compiles and what starts processes, and to draw calls of those operators alone
            that the class has rules for: for use while a class is written.
        tell: Called with what is tried next, before each clause: how far it is.
        values: Of a class that holds only some values: a function of a tensor of the class and of values that were
            drawn, of its size and dtype. It gives dense values that the class holds, to write in their place.

    Returns:
        A `Report`. `report.broken` is what to mend; `print(report)` says what differed, and by how much;
        `report.raise_if_broken()` is for tests; `report.markdown()` is for documentation.

    Raises:
        TypeError: What `make` gives is no traceable wrapper subclass.
        ValueError: `make` gives other values each time; there is no clause that `only` or `expected` names; or what
            `values` gives has another size.
        ImportError: `make` has parameters to vary, and there is no hypothesis, which draws their values.

    >>> from subclass_aot import TwoTensor
    >>> report = check_subclass(lambda: TwoTensor(torch.randn(3, 4), torch.randn(3, 4)), only=[12, 22])
    >>> report.broken
    []
    """

    def __call__(
        self,
        make: Make,
        readings: Sequence[Reading] | None = None,
        only: Collection[int] | None = None,
        expected: Expected | None = None,
        quick: bool = False,
        tell: Callable[[str], object] | None = None,
        values: Values | None = None,
    ) -> Report:
        expected = expected or {}
        clauses = [clause for clause in _chosen(only, expected) if clause.is_quick or not quick]
        with _aside():
            trial = Trial(make, readings, quick, values)
            findings = []
            for number, clause in enumerate(clauses):
                if tell is not None:
                    tell(f"{number + 1} of {len(clauses)}: clause {clause.number}, {clause.name}")
                findings.append(_tried(clause, trial, expected))
            if tell is not None and any(finding.is_broken for finding in findings):
                tell("what is broken, once more: what of the class runs in it")
            return Report(trial.cls, findings, causes_of(trial, findings))

    def cases(
        self,
        make: Make,
        readings: Sequence[Reading] | None = None,
        only: Collection[int] | None = None,
        expected: Expected | None = None,
        values: Values | None = None,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Makes a test of pytest one case for each clause, which it gets as `case`, a function without parameters.

        Args:
            make: As of `check_subclass`, and so are the others.
            readings: What a tensor means.
            only: The numbers of the clauses to try.
            expected: Reasons for clauses that are not kept.
            values: What a class that holds only some values is given.

        Returns:
            A decorator. The test calls `case()`, which raises `ContractError` where the class must be mended.
        """
        import pytest

        expected = expected or {}

        @functools.cache
        def trial() -> Trial:
            return Trial(make, readings, values=values)

        def case(clause: Clause) -> Callable[[], None]:
            def run() -> None:
                with _aside():
                    findings = [_tried(clause, trial(), expected)]
                    report = Report(trial().cls, findings, causes_of(trial(), findings))
                report.raise_if_broken()

            return run

        chosen = _chosen(only, expected)
        params = [pytest.param(case(clause), id=f"{clause.number} {clause.name}") for clause in chosen]
        return pytest.mark.parametrize("case", params)


check_subclass = CheckSubclass()


def _chosen(only: Collection[int] | None, expected: Expected) -> list[Clause]:
    known = {(clause.number, clause.name) for clause in CLAUSES}
    for key in expected:
        if key not in known:
            near = difflib.get_close_matches(str(key), map(str, sorted(known)), n=1, cutoff=0)
            raise ValueError(f"there is no clause {key}; the nearest is {near[0]}")
    numbers = {number for number, _ in known}
    for number in only or ():
        if number not in numbers:
            raise ValueError(f"there is no clause {number}; there are {sorted(numbers)}")
    return [clause for clause in CLAUSES if only is None or clause.number in only]


def _tried(clause: Clause, trial: Trial, expected: Expected) -> Finding:
    came = settled(lambda: clause.check(trial), trial.cls)
    if clause.is_drawn and not is_fault(clause, came[0]):
        came = falsified(clause, trial) or came
    finding = Finding(clause, *came)
    reason = expected.get((clause.number, clause.name))
    if reason is None:
        return finding
    if finding.verdict in ("broken", "raises"):
        return Finding(clause, "expected", f"{reason} ({finding.why})")
    if finding.verdict == "kept":
        return Finding(clause, "kept, not expected", f"take it out of expected=, which says: {reason}")
    return finding


@contextlib.contextmanager
def _aside() -> Iterator[None]:
    """Runs the block, and restores random numbers after it. Warnings of a class are ignored."""
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        yield
