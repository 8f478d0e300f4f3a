"""Whether what a trace assumed of sizes holds of another call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Fact, Kind, Scope, difference, facts_of, global_state
from subclass_aot.engine.facts.fact import Assumed
from subclass_aot.engine.facts.sizes import facts_of_sizes
from tests.engine.facts.test_agreement import answers

SCOPE = Scope(
    places=(("a.size(0)", "s0"), ("a.stride(0)", "s1"), ("b.size(0)", "s0"), ("b.size(1)", "2*s0"), ("c.tag", "s0")),
    assumptions=("s0 >= 2", "(s0 // (s1 - 3)) == 2", "s7 > 1"),
)


def found(**numbers: int) -> list[Fact]:
    return list(facts_of_sizes({f"{name[0]}.{name[1:-1]}({name[-1]})": n for name, n in numbers.items()}, SCOPE))


def test_what_holds() -> None:
    assert found(asize0=4, astride0=5, bsize0=4, bsize1=8) == [
        Fact("b.size(0)", Kind.SIZE, "s0"),
        Fact("b.size(1)", Kind.SIZE, "2*s0"),
        Fact("s0 >= 2", Kind.ASSUMED, Assumed(True, "")),
        Fact("(s0 // (s1 - 3)) == 2", Kind.ASSUMED, Assumed(True, "")),
    ]


def test_what_does_not_hold() -> None:
    """It is no error that what was assumed first keeps another one from being computed."""
    size, twice, least, ratio = found(asize0=1, astride0=3, bsize0=4, bsize1=2)
    assert size.value == "that is 1, 4" and twice.value == "2*s0"
    assert str(least.value) == str(ratio.value) == "not so, where s0 = 1, s1 = 3"


def test_what_a_call_has_not() -> None:
    assert [fact.place for fact in found(bsize0=3, bsize1=6)] == ["b.size(1)", "s0 >= 2"]


def assumes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] * 2 == y.shape[0] and x.shape[0] < 6 else x + 1


LINES: dict[tuple[int, int], str] = {
    (3, 6): "", (3, 5): "args[1].size(0): 2*s0 before, that is 6, 5 now",
    (7, 14): "s0 <= 5 before, not so now, where s0 = 7; s0 < 6 before, not so now, where s0 = 7",
}  # fmt: skip


@pytest.mark.parametrize("sizes", LINES)
def test_of_a_call(sizes: tuple[int, int]) -> None:
    compiled = aot_compile(assumes, dynamic=True)
    compiled(torch.ones(2), torch.ones(4))
    made = compiled._specializations.latest
    assert made is not None
    arguments = Arguments.of(assumes, tuple(map(torch.ones, sizes)), {})
    assert "; ".join(difference(made.facts, facts_of(arguments, global_state(), made.scope))) == LINES[sizes]


def test_a_division_by_what_is_zero_now() -> None:
    def divides(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if x.shape[0] <= 1:
            return y + 1
        return y * 2 if y.shape[0] // (x.shape[0] - 1) > 2 else y * 3

    compiled = aot_compile(divides, dynamic=True)
    for n in (3, 1, 2, 9):
        args = torch.ones(n), torch.ones(8)
        torch.testing.assert_close(compiled(*args), divides(*args))


@pytest.mark.parametrize(("kind", "sizes"), [(Kind.ASSUMED, (7, 14)), (Kind.SIZE, (3, 5))], ids=str)
def test_left_out_of_guards(kind: Kind, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_if: Callable[..., None] = GuardedSource.refuse_if

    def without(source: GuardedSource, condition: str, *comment: Any) -> None:
        if not (
            any(bound in condition for bound in ("<= 5", "< 6")) if kind is Kind.ASSUMED else "!= 2*s0" in condition
        ):
            refuse_if(source, condition, *comment)

    for leaves_out in (False, True):
        if leaves_out:
            monkeypatch.setattr(GuardedSource, "refuse_if", without)
        compiled = aot_compile(assumes, dynamic=True)
        compiled(torch.ones(2), torch.ones(4))
        same = answers(compiled._specializations.latest, assumes, tuple(map(torch.ones, sizes)))  # type: ignore[arg-type]
        assert same == {"guard": leaves_out, "words": False, "stable text": False}
