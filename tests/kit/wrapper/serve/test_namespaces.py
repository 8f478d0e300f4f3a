"""Operators of other namespaces are served by who registers for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper.serve.namespaces import SERVED, handler_of_namespace


@pytest.fixture
def operator() -> Iterator[Any]:
    """An operator of a namespace that nobody has registered for."""
    library = torch.library.Library("served_by_nobody", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
    yield torch.ops.served_by_nobody.twice.default
    library._destroy()


def test_a_namespace_of_others(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(sa.WrapperTensor):
        part: torch.Tensor

    half = Half(torch.ones(2))
    with pytest.raises(OperatorRuleError, match="twice"):
        operator(half)
    asked: list[type] = []

    def make(cls: Any, func: Any) -> Any:
        asked.append(cls)
        return (lambda x: cls(x.part * 2)) if func is operator else None

    class Other(Half):
        pass

    monkeypatch.setitem(SERVED, "served_by_nobody", make)
    assert torch.equal(operator(Other(torch.ones(2))).part, torch.full((2,), 2.0)) and set(asked) == {Other}
    assert handler_of_namespace(Other, torch.ops.aten.mul.Tensor) is None


def test_who_has_no_handler_lets_it_be_served_as_others_are(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVED, "served_by_nobody", lambda cls, func: None)
    pair = sa.TwoTensor(torch.ones(2), torch.zeros(2))
    found = operator(pair)
    assert torch.equal(found.a, torch.full((2,), 2.0)) and torch.equal(found.b, torch.zeros(2))
