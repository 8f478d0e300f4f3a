"""Calls that the function itself runs: when a warning says so, and when they are traced no more."""

from __future__ import annotations

from subclass_aot.engine.failures import Failures


def test_two_failures_of_a_kind() -> None:
    failures = Failures()
    assert not failures and not failures.why_given_up(1)
    assert failures.note(1, "it steps") and failures and not failures.why_given_up(1)
    assert failures.note(1, "it steps again") and failures.why_given_up(1) == "it steps again"
    assert not failures.why_given_up(2)


def test_what_is_built_once_needs_no_warning() -> None:
    failures = Failures()
    for kind in range(4):
        assert not failures.note(kind, "it builds", True) and failures.may_build
        failures.note_compiled(kind)
        assert not failures.may_build
    assert not failures.note(0, "it builds", True) and not failures, "a call of the kind was compiled since"
    assert failures.note(0, "it builds", True) and not failures.why_given_up(0)
    assert failures.note(0, "it builds", True) and failures.why_given_up(0) == "it builds"


def test_many_that_build() -> None:
    failures = Failures()
    warned = [failures.note(kind, "it builds", True) for kind in range(100)]
    assert not any(warned[:8]) and all(warned[8:]) and not failures
