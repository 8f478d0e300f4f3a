"""What is to blame: the law first, one method for all that follows from it, two for two mistakes."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.causes import causes_of
from subclass_aot.testing.contract.trial import Trial
from tests.testing.contract.classes import Held, Scaled, aten, held, scaled

OPERATORS = (0, 2, 10, 23, 24, 27)


class LosesSign(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return LosesSign(plain.abs(), torch.ones_like(self.scale))


class OfOld(Scaled):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return OfOld(plain + self.codes.amax(), torch.ones_like(self.scale))


class TwoMistakes(LosesSign):
    def from_plain(self, plain: torch.Tensor) -> Any:
        return TwoMistakes(plain.abs(), torch.ones_like(self.scale))


@TwoMistakes.implements(aten.relu.default)
def too_much(x: Any) -> Any:
    return x.to_plain().relu() + 1


class Stale(Scaled):
    def to_plain(self) -> torch.Tensor:
        if "kept" not in vars(self):
            self.kept = super().to_plain()
        return self.kept


class Widened(Scaled):
    def to_plain(self) -> torch.Tensor:
        return super().to_plain().double()


def causes(cls: type) -> list[tuple[list[str], int]]:
    report = check_subclass(scaled(cls), only=OPERATORS, quick=True)
    return [([method.name for method in cause.methods], len(cause.findings)) for cause in report.causes]


def test_the_law_comes_first_and_what_follows_is_folded_under_it() -> None:
    ((methods, _),) = causes(LosesSign)  # what writes is right, since the class keeps no more of any value
    assert methods == ["from_plain", "to_plain"]
    ((methods, count),) = causes(OfOld)
    assert methods == ["from_plain"] and count > 5  # values of another show that it is no reading


def test_two_mistakes_are_two_causes() -> None:
    (first, _), (second, _) = causes(TwoMistakes)
    assert first == ["from_plain", "to_plain"] and second == ["aten.relu.default"]


def test_a_reading() -> None:
    assert causes(Stale)[0][0] == ["to_plain"]
    assert causes(Widened)[0][0] == ["outer_metadata", "to_plain"]


class Slip(Scaled):
    pass


@Slip.implements(aten.neg.default)
def negative(x: Any) -> Any:
    return x.to_plain() + len(x.missing)


class OtherSize(Scaled):
    pass


@OtherSize.implements(aten.neg.default)
def longer(x: Any) -> Any:
    return torch.cat([-x.to_plain(), x.to_plain()])


class HalfSlice(Held):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func is aten.slice.Tensor:
            result.held = result.held[1:]
        return result

    def to_plain(self) -> torch.Tensor:
        return self.held * 1


class CopiesSign(HalfSlice):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.copy_.default and isinstance(args[0], cls):
            args = (args[0], getattr(args[1], "held", args[1]).abs())
        return Held.__torch_dispatch__.__func__(cls, func, types, args, kwargs)  # type: ignore[attr-defined]


class Doubles(HalfSlice):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return Held.__torch_dispatch__.__func__(cls, func, types, args, kwargs)  # type: ignore[attr-defined]

    def to_plain(self) -> torch.Tensor:
        return doubled(self.held)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


class Swaps(Held):
    """What is unflattened has its parts in another order."""

    def __init__(self, held: torch.Tensor, other: torch.Tensor, note: Any = "") -> None:
        super().__init__(held, note)
        self.other = other

    def __new__(cls, held: torch.Tensor, other: torch.Tensor, note: Any = "") -> Any:
        return super().__new__(cls, held, note)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["held", "other"], self.note

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["other"], inner["held"], context)

    def to_plain(self) -> torch.Tensor:
        return self.held - self.other


class GivesText(Held):
    """What makes the tensor fails, and dispatch is wrong."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.mul.Tensor:
            return cls(args[0].note)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def __new__(cls, held: torch.Tensor, note: Any = "") -> Any:
        held.requires_grad  # noqa: B018  # which a text has not
        return super().__new__(cls, held, note)


def test_what_gives_a_constructor_its_arguments_is_named() -> None:
    report = check_subclass(held(GivesText), only=[27], quick=True)
    assert "of what `__torch_dispatch__` (test_causes.py:" in str(report).splitlines()[0]


def test_a_rule_that_fails_by_a_slip_or_gives_something_else() -> None:
    (((name,), _),) = causes(Slip)
    assert name == "aten.neg.default"
    (((name,), _),) = causes(OtherSize)
    assert name == "aten.neg.default"


def test_classes_by_hand() -> None:
    report = check_subclass(held(HalfSlice), only=[2], quick=True)
    assert [method.name for method in report.causes[0].methods] == ["__torch_dispatch__", "__new__"]
    report = check_subclass(held(CopiesSign), only=[0], quick=True)
    assert [method.name for method in report.causes[0].methods] == ["__torch_dispatch__", "to_plain"]
    report = check_subclass(held(Doubles), only=[0], quick=True)
    assert [method.name for method in report.causes[0].helpers] == ["doubled"]
    assert ", with `doubled` (test_causes.py:" in str(report).splitlines()[0]


def test_the_round_trip_comes_before_what_it_makes_wrong() -> None:
    report = check_subclass(lambda: Swaps(torch.randn(4, 6), torch.randn(4, 6), 2), only=[3, 10], quick=True)
    assert [method.name for method in report.causes[0].methods] == ["__tensor_unflatten__", "__tensor_flatten__"]


def test_what_is_right_has_no_cause() -> None:
    assert causes(Scaled) == []
    assert causes_of(Trial(scaled(Scaled)), []) == []


class Dense(Held):
    """Views and what is written are dense tensors; it refuses one operator, which is owed."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.empty_like.default:
            raise NotImplementedError("empty_like")
        if func in (aten.slice.Tensor, aten.select.int, aten.transpose.int):
            return func(args[0].held, *args[1:])
        return super().__torch_dispatch__(func, types, args, kwargs)

    def to_plain(self) -> torch.Tensor:
        return self.held * 1


def test_of_dispatch_a_line_is_to_blame_and_explains_what_ran_there() -> None:
    report = check_subclass(held(Dense), only=[20, 22, 24, 27], quick=True)
    told = {cause.findings[0].clause.name: len(cause.findings) for cause in report.causes}
    assert told["x.transpose(0, -1)"] > 10 and told["the class comes back"] == 1, report  # two lines are two mistakes


class ByTable(Held):
    """Rules in a table: one loses its strides, another its size."""

    TABLE: Any = {}

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in cls.TABLE:
            return cls.TABLE[func](cls, func, *args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def to_plain(self) -> torch.Tensor:
        return self.held * 1


def shorter(cls: Any, func: Any, x: Any, *args: Any) -> Any:
    made = func(x.held, *args)
    return cls(made.contiguous(), x.note)


ByTable.TABLE[aten.slice.Tensor] = shorter


def test_what_is_left_is_grouped_by_rule_and_by_what_it_says() -> None:
    report = check_subclass(held(ByTable), only=[22], quick=True)
    (cause,) = [cause for cause in report.causes if "x[::2]" in {each.clause.name for each in cause.findings}]
    assert cause.methods[0].name == "aten.slice.Tensor" and len(cause.findings) > 3


class Unsafe(Held, safe=False):
    pass


def test_errors_that_say_the_same_are_one() -> None:
    report = check_subclass(held(Unsafe), only=[37], quick=True)
    assert [len(cause.findings) for cause in report.causes] == [3], report
