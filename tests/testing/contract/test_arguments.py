"""Parameters of `make` are varied by the kind of their defaults; what is found is made small, and told."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.testing import check_subclass
from subclass_aot.testing.contract.arguments import falsified, others, parameters_of, told
from subclass_aot.testing.contract.check import CLAUSES
from subclass_aot.testing.contract.clause import Clause
from subclass_aot.testing.contract.trial import Trial, require
from tests.testing.contract.classes import Held


def pair(size: tuple[int, int] = (4, 6), dtype: torch.dtype = torch.float32, seed: int = 0) -> TwoTensor:
    generator = torch.Generator().manual_seed(seed)
    return TwoTensor(*(torch.randn(size, generator=generator).to(dtype) for _ in range(2)))


def int8(size: tuple[int, int] = (4, 6), dtype: torch.dtype = torch.float32, zero_point: bool = False) -> Int8Weight:
    weight = Int8Weight.from_float(torch.randn(size).to(dtype))
    return Int8Weight(weight.codes, weight.scale, torch.rand(size[0], 1).to(dtype) * 9) if zero_point else weight


QUICK = [1, 2, 5, 7, 8, 9, 10, 11, 12, 13, 15, 17, 21, 23, 24, 26, 28, 29, 30, 31, 35, 39]


@pytest.mark.parametrize("make", [pair, int8])
def test_our_classes(make: Any) -> None:
    report = check_subclass(make, only=[34, 36])
    assert report.broken == []
    verdicts = {finding.clause.name: finding.verdict for finding in report.findings}
    assert verdicts["aot_compile: other arguments of make"] == "kept"
    assert verdicts["torch.compile: other arguments of make"] == "kept"


@pytest.mark.parametrize("make", [pair, int8])
def test_our_classes_of_other_sizes_and_dtypes(make: Any) -> None:
    trial = Trial(make)
    clauses = [clause for clause in CLAUSES if clause.number in QUICK and clause.is_drawn]
    assert len(clauses) > 35
    assert {clause.name: came for clause in clauses if (came := falsified(clause, trial))} == {}


def test_which_parameters_are_varied() -> None:
    def make(a: Any, size: Any = (1, 2), of: Any = torch.float16, on: Any = True, seed: Any = 3, n: Any = 4) -> Any: ...

    assert parameters_of(make) == {"size": (1, 2), "of": torch.float16, "on": True, "seed": 3}
    assert parameters_of(lambda: None) == {} and parameters_of(lambda size=(), kind="a", other=(1, "a"): None) == {}


def test_one_other_value_of_each() -> None:
    assert [what for what, _ in others(Trial(pair))] == [
        "make(size=(8, 6))",
        "make(dtype=torch.float64)",
        "make(seed=1)",
    ]
    assert [what for what, _ in others(Trial(int8))][-1] == "make(zero_point=True)"

    def refuses(size: tuple[int, int] = (4, 6)) -> TwoTensor:
        if size != (4, 6):
            raise ValueError("only these")
        return pair(size)

    assert list(others(Trial(refuses))) == []


class OddColumns(Held):
    """Its copies forget the last of an odd number of columns."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.clone.default and args[0].shape[-1] % 2:
            copy = args[0].held.clone()
            copy[..., -1] = 0
            return cls(copy)
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_the_smallest_that_is_wrong() -> None:
    def make(size: tuple[int, int] = (4, 6), dtype: torch.dtype = torch.float32) -> OddColumns:
        return OddColumns(torch.ones(size, dtype=dtype))

    found = {finding.clause.name: finding.why for finding in check_subclass(make, only=[24]).broken}
    assert set(found) == {"the class comes back"}
    assert found["the class comes back"].startswith("make(size=(1, 1), dtype=torch.float32): clone has wrong values")
    assert check_subclass(lambda: make(), only=[24]).broken == []


def test_what_make_refuses_is_not_asked_for_again() -> None:
    asked: list[Any] = []

    def make(size: tuple[int, int] = (4, 6)) -> Held:
        asked.append(size)
        if size != (4, 6):
            raise ValueError("only these")
        return Held(torch.ones(size))

    trial = Trial(make)
    clause = Clause(1, "C", "rows", "it has four", lambda trial: require(trial.make().shape[0] == 4, "it has not"))
    assert falsified(clause, trial) is None
    assert len(set(asked)) > 3 and len([size for size in asked if size != (4, 6)]) == len(set(asked)) - 1


def test_without_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    check_subclass(lambda: pair(), only=[12])
    with pytest.raises(
        ImportError, match=r"make has the parameters \['size', 'dtype', 'seed'\].*subclass-aot\[testing\]"
    ):
        check_subclass(pair, only=[12])


def test_a_call_in_words() -> None:
    assert told({"size": (1, 2), "on": True}) == "make(size=(1, 2), on=True)"
