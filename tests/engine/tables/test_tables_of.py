"""Which tables a value has."""

from __future__ import annotations

import fractions
import functools
import types
import warnings
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.tables import HOOKS, MODULE_TABLES, Gradients, Table, extras_of, tables_of


class Key:
    pass


def kinds(value: Any, pinned: bool = False, whole_modules: bool = False, module_name: str | None = None) -> list[str]:
    return [table.kind for table in tables_of(value, pinned, module_name, whole_modules)]


def closure(x: Any) -> Any:
    return lambda: x


LIMIT = 3


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([], ["elements"]),
        ({"a": 1}, ["items"]),
        ({Key(): 1, "a": 1}, ["items", "keys"]),
        ({Key: 1}, ["items"]),
        ({torch.ones(1): 1}, ["items"]),
        (closure(1), ["cells", "attributes"]),
        (functools.partial(len), ["partial"]),
        (functools.cache(closure), ["attributes"]),
        (types, []),
        (Key, ["class"]),
        (fractions.Fraction, []),
        (len, []),
        ((i for i in range(2)), []),
        (3, []),
    ],
    ids=lambda x: type(x).__name__,
)
def test_kinds_of_tables(value: Any, found: list[str]) -> None:
    assert kinds(value) == found


def test_what_stands_for_a_function_holds_that_only() -> None:
    function = functools.cache(closure)
    function.note = "here"  # type: ignore[attr-defined]
    (table,) = tables_of(function, False, None, False)
    assert table.read(function) == [("__wrapped__", closure)]


def test_functions_of_libraries_are_looked_into_where_they_are_held() -> None:
    """A library's decorator holds the user's function in its closure."""
    below = torch.no_grad()(closure)
    below.__module__ = "torch"  # as of a function that a library made for the user
    assert kinds(below) == [] and kinds(below, pinned=True) == ["cells"]


def limited(x: Any) -> Any:
    return x * LIMIT


def test_functions_of_the_users_have_globals() -> None:
    assert kinds(limited) == kinds(limited, module_name=__name__) == ["attributes", "globals"]


def test_a_module_without_its_parameters_and_with_them() -> None:
    linear: Any = torch.nn.Linear(2, 2)
    assert kinds(linear) == ["attributes"]
    assert kinds(linear, whole_modules=True) == ["attributes", *MODULE_TABLES]
    handle = linear.register_forward_hook(lambda *_: None)
    assert [kind for kind in kinds(linear) if kind in HOOKS] == ["_forward_hooks"]
    handle.remove()
    assert kinds(linear) == ["attributes"]
    linear.scale = 2.0
    (table,) = tables_of(linear, False, None, False)
    assert dict(table.read(linear)) == {"training": True, "in_features": 2, "out_features": 2, "scale": 2.0}


@pytest.mark.parametrize("make", [lambda: torch.ones(2), lambda: TwoTensor(torch.ones(2), torch.ones(2))])
def test_what_a_program_put_on_a_tensor(make: Any) -> None:
    tensor = make()
    assert extras_of(tensor) == []
    tensor.note = "here"
    (table,) = extras_of(tensor)
    assert table.read(tensor) == [("note", "here")]


def test_private_attributes_of_a_wrapper_belong_to_its_class() -> None:
    wrapper, dense = TwoTensor(torch.ones(2), torch.ones(2)), torch.ones(2)
    wrapper._cache = dense._cache = 1  # type: ignore[attr-defined]
    assert extras_of(wrapper) == []
    assert [table.read(dense) for table in extras_of(dense)] == [[("_cache", 1)]]


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: torch.ones(2, requires_grad=True), [Table("grad")]),
        (lambda: torch.ones(2), []),
        (lambda: torch.ones(2, requires_grad=True) * 1, []),
    ],
)
def test_gradients_are_a_table_if_asked_for(make: Any, found: list[Table]) -> None:
    assert extras_of(make(), Gradients.OF_THOSE_THAT_REQUIRE_IT) == found and extras_of(make()) == []
    assert extras_of(make(), Gradients.OF_ALL) == [Table("grad")]


def test_the_gradient_of_a_tensor_that_may_have_one() -> None:
    frozen, computed = torch.ones(2), torch.ones(2, requires_grad=True) * 1
    frozen.grad, retains = torch.ones(2), computed * 1
    retains.retain_grad()
    retains.sum().backward()
    with warnings.catch_warnings(action="error"):
        assert Table("grad").read(frozen) == [("grad", frozen.grad)]
        assert Table("grad").read(computed) == [("grad", None)]
        assert Table("grad").read(retains) == [("grad", retains.grad)] and retains.grad is not None
