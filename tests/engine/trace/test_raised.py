"""What a function raises in a trace: whose error it is, and that it holds nothing of the trace."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from subclass_aot.engine.graph import Retrace
from subclass_aot.engine.trace import RunsItself, is_of_function
from subclass_aot.errors import DataDependentError, MutationError, OperatorRuleError
from subclass_aot.meta.symbols import SizesMustBeKnown

KEPT = ValueError("kept")


@pytest.mark.parametrize("error", [ValueError(1), GeneratorExit(), StopIteration(), OperatorRuleError("no rule")])
def test_errors_of_the_function(error: BaseException) -> None:
    assert is_of_function(error)


@pytest.mark.parametrize(
    "error",
    [MutationError(""), DataDependentError(""), KeyboardInterrupt(), SystemExit(), Retrace(), SizesMustBeKnown()],
)
def test_errors_of_others(error: BaseException) -> None:
    assert not is_of_function(error)


def _numbers() -> Iterator[int]:
    yield 1
    raise KEPT


def _program() -> None:
    list(_numbers())


def _build() -> None:
    try:
        _program()
    except ValueError as error:
        raise RunsItself.since(error, "program") from None


def _steps(error: BaseException) -> list[str]:
    return [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]


def test_the_steps_of_a_trace_are_forgotten_and_no_others() -> None:
    KEPT.__traceback__ = None
    with pytest.raises(ValueError, match="kept"):
        _program()
    before = _steps(KEPT)
    with pytest.raises(RunsItself, match=r"ValueError: kept\n.*test_raised\.py:\d+: raise KEPT") as caught:
        _build()
    assert _steps(KEPT) == ["_build", "_program", "_numbers", *before]
    for _ in range(2):
        caught.value.forget()
        assert _steps(KEPT) == before


def test_an_error_that_cannot_be_written_out() -> None:
    class Wrong(Exception):
        def __str__(self) -> str:
            raise LookupError

    assert "Wrong" in str(RunsItself.since(Wrong(), "program"))
