"""Arguments of `make`: other sizes, dtypes and seeds, and parts that are there or not.

Note [Parameters of make]
~~~~~~~~~~~~~~~~~~~~~~~~~
`make()` alone gives the tensor that each clause is tried on. A parameter is varied if it has a default of one of these
kinds, and left alone if not:

- a tuple of ints is a size: as many dims, each from 1 to 8;
- a `torch.dtype` is any floating-point one;
- a bool is a part that is there or not;
- an int, if the parameter is called `seed`.

What `make` refuses, by any error, is not tried again.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from subclass_aot.testing.contract.clause import Clause, Settled, is_fault, settled
from subclass_aot.testing.contract.trial import Trial

_EXAMPLES = 8
_LONGEST_DIM = 8
_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

Arguments = Mapping[str, Any]


class _Falsified(Exception):
    """A clause is not kept for what was drawn."""


def parameters_of(make: Callable[..., object]) -> dict[str, object]:
    """Returns the parameters that are varied, with their defaults. See Note [Parameters of make].

    >>> def make(size=(4, 6), dtype=torch.float32, scaled=True, name="w"): ...
    >>> list(parameters_of(make))
    ['size', 'dtype', 'scaled']
    """
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # a function in C says nothing of its parameters
        return {}
    return {p.name: p.default for p in parameters if _is_varied(p.name, p.default)}


def others(trial: Trial) -> Iterator[tuple[str, Trial]]:
    """Yields trials of what `make` gives where one parameter differs, each with the arguments of `make`."""
    for name, default in parameters_of(trial.source[0]).items():
        arguments = {name: _other(default)}
        other = trial.asked_for(arguments)
        if other is not None:
            yield told(arguments), other


def falsified(clause: Clause, trial: Trial) -> Settled | None:
    """Draws arguments of `make` until a clause is not kept, and makes them as small as it can.

    Args:
        clause: The clause, which is kept for what `make()` gives.
        trial: Of the class.

    Returns:
        What came of the smallest that was found, or None.

    Raises:
        ImportError: `make` has parameters to vary, and there is no hypothesis.
    """
    parameters = parameters_of(trial.source[0])
    if not parameters:
        return None
    _hypothesis(list(parameters))
    found: list[Settled] = []

    def run(arguments: Arguments) -> None:
        other = trial.asked_for(arguments)
        if other is None:
            return
        verdict, why = settled(lambda: clause.check(other), other.cls)
        if is_fault(clause, verdict):
            found.append((verdict, f"{told(arguments)}: {why}"))
            raise _Falsified

    try:
        for arguments in _drawn(tuple(parameters.items())):
            run(arguments)
    except _Falsified:
        with contextlib.suppress(_Falsified):
            _run(parameters, run)  # which makes them smaller
        return found[-1]
    return None


@functools.cache
def _drawn(parameters: tuple[tuple[str, object], ...]) -> list[Arguments]:
    """Returns what is drawn for parameters: the same for each clause and class, and to draw takes its time."""
    found: dict[str, Arguments] = {}
    _run(dict(parameters), lambda arguments: found.setdefault(told(arguments), arguments))
    return list(found.values())


def _run(parameters: Mapping[str, object], run: Callable[[Arguments], object]) -> None:
    """Has hypothesis draw arguments, and make those smaller of which `run` raises."""
    hypothesis = _hypothesis(list(parameters))
    strategies = hypothesis.strategies
    drawn = strategies.fixed_dictionaries({name: _strategy(value, strategies) for name, value in parameters.items()})

    def once(arguments: Arguments) -> None:
        run(arguments)

    settings = hypothesis.settings(
        max_examples=_EXAMPLES, derandomize=True, database=None, deadline=None, report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )  # fmt: skip
    settings(hypothesis.given(drawn)(once))()


def told(arguments: Arguments) -> str:
    """Returns the call of `make` in words.

    >>> told({"size": (1, 2), "dtype": torch.float64})
    'make(size=(1, 2), dtype=torch.float64)'
    """
    return f"make({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _hypothesis(names: list[str]) -> Any:
    try:
        import hypothesis
        import hypothesis.strategies
    except ImportError:
        raise ImportError(
            f"make has the parameters {names}, which hypothesis draws: pip install 'subclass-aot[testing]', or give a "
            "make without them"
        ) from None
    return hypothesis


def _is_varied(name: str, default: object) -> bool:
    size = isinstance(default, tuple) and bool(default) and all(type(dim) is int for dim in default)
    return size or isinstance(default, bool | torch.dtype) or (name == "seed" and type(default) is int)


def _other(default: Any) -> object:
    """Returns a value of the kind of a default that is another."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, torch.dtype):
        return next(dtype for dtype in _DTYPES if dtype != default)
    return (2 * default[0], *default[1:])


def _strategy(default: Any, strategies: Any) -> Any:
    if isinstance(default, bool):
        return strategies.booleans()
    if isinstance(default, int):
        return strategies.integers(0, 99)
    if isinstance(default, torch.dtype):
        return strategies.sampled_from(_DTYPES)
    return strategies.tuples(*[strategies.integers(1, _LONGEST_DIM)] * len(default))
