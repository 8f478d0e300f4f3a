"""Advice, and when there is none."""

from __future__ import annotations

from subclass_aot.tensors import Int8Weight
from subclass_aot.testing.benchmark.advice import advise
from subclass_aot.testing.benchmark.rows import OPERATORS, Row
from tests.testing.benchmark import makers


def test_a_class_in_which_everything_is_slow_is_told_all_of_it() -> None:
    rows = [Row("class", "__tensor_flatten__", 1, us=7.0), Row("operator", "mm", 1, refused="no")]
    said = "\n".join(map(str, advise(makers.slow, rows)))
    for part in (
        "Slow does not turn __torch_function__ off",
        "__tensor_flatten__ takes 7 us",
        "a Context, cannot be hashed",
        "each a Context, differ",
        "is not replayed: ",
        "1 operators that a linear layer or AdamW needs are refused: mm",
    ):
        assert part in said, part


def test_a_class_that_is_right_is_told_nothing() -> None:
    rows = [Row("class", "__tensor_flatten__", 1, us=0.2), Row("operator", "mm", 1, us=1.0)]
    assert not list(advise(makers.torchs_two_tensor, rows))


def test_many_operators_through_to_plain_are_named() -> None:
    import torch

    def make() -> torch.Tensor:
        return Int8Weight.from_float(torch.randn(4, 4))

    def rows(*names: str) -> list[Row]:
        return [Row("operator", name, 1, us=1.0) for name in names]

    assert "add" in OPERATORS and "1 of 2 operators run through to_plain" in str(*advise(make, rows("add", "detach")))
    assert not list(advise(make, rows("add", "detach", "clone", "t")))
