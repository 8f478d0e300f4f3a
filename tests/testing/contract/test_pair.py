"""Two child processes: what each rank tells becomes one outcome, and none is lost."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from subclass_aot.testing.contract import pair
from subclass_aot.testing.contract.pair import RaisedInChild, require_in_pair, settled_in_pairs
from subclass_aot.testing.contract.processes import PROGRAMS
from subclass_aot.testing.contract.trial import BrokenClause, DoesNotApply, Trial
from tests.testing.contract.classes import two_tensor
from tests.testing.contract.makers import ends_the_process, raises_in_child, second_raises

pytestmark = pytest.mark.long

MODULE = "subclass_aot.testing.contract.processes"


def test_what_cannot_be_imported_there() -> None:
    trial = Trial(lambda: two_tensor())
    with pytest.raises(DoesNotApply, match="give a function of a module as make"):
        require_in_pair(trial, MODULE, list(PROGRAMS), "order in two processes")


def test_what_cannot_be_made_there() -> None:
    found = settled_in_pairs(pickle.dumps((raises_in_child, None)), MODULE, list(PROGRAMS))
    assert set(found) == set(PROGRAMS)
    for verdict, why in found.values():
        assert verdict == "does not apply"
        assert "another process cannot make the tensor" in why and why.endswith("(KeyError: 'only where it was made')")


def test_a_rank_that_is_ended_by_a_signal() -> None:
    found = settled_in_pairs(pickle.dumps((ends_the_process, None)), MODULE, ["order in two processes"])
    assert found["order in two processes"] == ("broken", "on rank 0 of 2: it ends the process by SIGKILL")


def test_a_pair_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair, "_LONGEST", 0.0)
    found = settled_in_pairs(pickle.dumps((two_tensor, None)), MODULE, ["order in two processes"])
    assert found["order in two processes"] == ("raises", "on rank 0 of 2: rank 0 did not end within 0 s")


@pytest.mark.parametrize(
    ("error", "came"),
    [(BrokenClause, ("broken", "b")), (DoesNotApply, ("does not apply", "d")), (RaisedInChild, ("raises", "r"))],
)
def test_outcomes_are_raised_here(error: Any, came: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def once(payload: bytes, module: str, programs: Any) -> Any:
        calls.append((module, programs))
        return {"one": came, "other": ("kept", "")}

    monkeypatch.setattr(pair, "settled_in_pairs", once)
    trial = Trial(two_tensor)
    with pytest.raises(error, match=came[1]):
        require_in_pair(trial, MODULE, ["one", "other"], "one")
    require_in_pair(trial, MODULE, ["one", "other"], "other")
    assert calls == [(MODULE, ["one", "other"])]


def test_the_worse_of_two_and_the_earlier_of_two() -> None:
    kept, raised, broken = ("kept", ""), ("raises", "KeyError: 1"), ("broken", "off by 1")
    of_both: Any = pair._of_both
    assert of_both([(1.0, kept), (2.0, kept)]) == kept
    assert of_both([(1.0, raised), (2.0, broken)]) == ("broken", "on rank 1 of 2: off by 1")
    assert of_both([(2.0, broken), (1.0, ("broken", "off by 2"))]) == ("broken", "on rank 0 of 2: off by 1")
    assert of_both([(2.0, ("raises", "closed")), (1.0, raised)]) == ("raises", "on rank 1 of 2: KeyError: 1")


def test_after_one_that_only_one_rank_raises_another_pair_goes_on() -> None:
    found = settled_in_pairs(pickle.dumps((second_raises, None)), MODULE, ["DTensor: rows", "order in two processes"])
    assert found["DTensor: rows"] == ("raises", "on rank 1 of 2: KeyError: 'not on this rank'")
    assert found["order in two processes"] == ("kept", "")
