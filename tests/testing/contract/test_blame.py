"""Which functions of a class run, and which of them are suspicious."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight
from subclass_aot.testing.contract.blame import Method, Run, Watch, methods_of, slip_of, suspects
from tests.testing.contract.classes import Held, Scaled, aten, int8_weight
from tests.testing.contract.mutated_classes import Coded


class Doubled(Scaled):
    def to_plain(self) -> torch.Tensor:
        return super().to_plain() * 2


@Doubled.implements(aten.neg.default, aten.abs.default)
def doubled(x: Any) -> Any:
    return helper(x)


def helper(x: Any) -> Any:
    return x.detach()


def test_the_functions_of_a_class() -> None:
    methods = {(method.name, method.kind) for method in methods_of(Doubled).values()}
    assert {
        ("to_plain", "method"),
        ("to_plain", "function"),
        ("from_plain", "method"),
        ("outer_metadata", "method"),
    } <= methods
    assert {("aten.neg.default, aten.abs.default", "rule"), ("helper", "function")} <= methods
    assert all(method.file == __file__ or method.file.endswith("classes.py") for method in methods_of(Doubled).values())
    assert {"__new__", "data", "__tensor_unflatten__"} <= {method.name for method in methods_of(Held).values()}
    assert {"aten.mm.default", "dequantize"} <= {method.name for method in methods_of(Coded).values()}
    assert {"quantize", "to_plain"} <= {method.name for method in methods_of(Int8Weight).values()}


class Partly(Scaled):
    pass


for operator in (aten.neg.default, aten.abs.default):
    Partly.implements(operator)(functools.partial(lambda op, x: op(x.to_plain()), operator))


def test_a_function_that_is_the_rule_of_several_operators() -> None:
    assert "aten.neg.default, aten.abs.default" in {method.name for method in methods_of(Partly).values()}


def test_what_runs_is_noted_and_what_makes_the_tensor_is_not() -> None:
    watch = Watch(Int8Weight)

    def check() -> None:
        with watch.paused():
            weight = int8_weight()
        weight.to_plain()

    watch.check(check)
    (run,) = watch.runs
    assert not run.is_broken and {method.name for method in run.methods} == {"to_plain", "centered"}


def test_parts_are_noted_by_themselves_and_what_raises_is_not() -> None:
    watch = Watch(Int8Weight)

    def broken() -> None:
        int8_weight().to_plain()
        raise AssertionError("no")

    def parts() -> None:
        watch.check(lambda: None)
        watch.check(broken)

    with pytest.raises(AssertionError):
        watch.check(parts)
    with pytest.raises(KeyError):
        watch.check(lambda: {}["a"])
    assert [run.is_broken for run in watch.runs] == [False, True]
    assert sys.gettrace() is None


def test_the_line_that_runs_in_what_is_broken_is_named() -> None:
    method = Method("__torch_dispatch__", "method", "b.py", 1)
    runs = [Run(True, frozenset([(method, 2), (method, 5)])), Run(False, frozenset([(method, 2), (method, 7)]))]
    ((found, _),) = suspects(runs)
    assert found == method and str(found) == "`__torch_dispatch__` (b.py:5)"


def test_of_two_that_are_as_suspicious_the_rule_comes_first() -> None:
    method, rule = Method("a", "method", "b.py", 1), Method("aten.c", "rule", "b.py", 2)
    assert [each.name for each, _ in suspects([Run(True, frozenset([(method, 1), (rule, 2)]))])] == ["aten.c", "a"]
    assert suspects([Run(False, frozenset([(method, 1)]))]) == []
    assert str(rule) == "the rule for aten.c (b.py:2)" and str(method) == "`a` (b.py:1)"


class _Refusing(torch.Tensor):
    """A class whose rules raise in all ways."""

    def by_raise(self) -> None:
        raise ValueError("only for two dims")

    def by_assert(self) -> None:
        assert isinstance(self, int), "only for numbers"

    def by_a_helper(self) -> None:
        _helper()

    def by_what_is_not_implemented(self) -> None:
        torch.zeros(2, dtype=torch.int8).softmax(0)

    def by_raising_again(self) -> None:
        try:
            torch.ones(2) + torch.ones(3)
        except RuntimeError as error:
            raise ValueError("sizes differ") from error

    def of_sizes(self) -> None:
        torch.ones(2) + torch.ones(3)

    def of_a_dtype(self) -> None:
        torch.mm(torch.ones(2, 2), torch.ones(2, 2, dtype=torch.float64))

    def of_functions_of_torch(self) -> None:
        torch.nn.functional.linear(torch.ones(2), torch.ones(3, 3))

    def of_python_in_torch(self) -> None:
        torch.nn.functional.interpolate(torch.ones(2, 2, 2), mode="none")

    def of_an_index(self) -> None:
        ()[0]

    def of_unpacking(self) -> None:
        (_,) = (1, 2)

    def of_itself(self) -> None:
        self.of_itself()

    def of_a_block(self) -> None:
        with torch.no_grad():
            torch.ones(2) + torch.ones(3)

    def of_a_cleanup(self) -> None:
        try:
            torch.ones(2) + torch.ones(3)
        finally:
            self.calls = 1


def _helper() -> None:
    raise RuntimeError("of rows alone")


def _raised(name: str) -> Exception:
    try:
        getattr(_Refusing(), name)()
    except Exception as error:
        return error
    raise AssertionError(name)


@pytest.mark.every_case
@pytest.mark.parametrize("name", [name for name in vars(_Refusing) if name.startswith("by_")])
def test_what_a_class_raises_by_name_is_a_refusal(name: str) -> None:
    assert slip_of(_raised(name), _Refusing) is None


@pytest.mark.every_case
@pytest.mark.parametrize("name", [name for name in vars(_Refusing) if name.startswith("of_")])
def test_what_its_code_runs_into_is_a_slip_with_its_line(name: str) -> None:
    told = slip_of(_raised(name), _Refusing)
    lines, first = inspect.getsourcelines(getattr(_Refusing, name))
    assert told is not None and told.startswith(f"`{name}` (test_blame.py:"), told
    assert first <= int(told.partition("py:")[2].partition(")")[0]) < first + len(lines)


def test_what_is_raised_without_code_of_the_class_says_nothing_of_it() -> None:
    assert slip_of(RuntimeError("sizes differ"), _Refusing) is None
