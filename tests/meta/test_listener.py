"""What a listener hears of, and what is asked of one that knows nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor, TwoTensor
from subclass_aot.errors import DataDependentError
from subclass_aot.meta import Stream

aten = torch.ops.aten


class Hearing(Stream):
    """Writes down what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def on_operator(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        self.heard.append((func, args, kwargs, result))

    def on_wrapper_operator(self, func: Any, args: Any, kwargs: Any) -> None:
        self.heard.append((func, args, kwargs))

    def on_lazy_view(self, source: Any, copy: Any) -> None:
        self.heard.append(("materialized", source, copy))

    def replaced(self, leaf: Any, other: Any) -> None:
        self.heard.append(("replaced", leaf, other))


def test_operators_are_heard_with_the_leaves_they_were_given_and_made() -> None:
    x = MetaTensor(torch.ones(2))
    with Hearing() as stream:
        y = torch.add(x, 1, alpha=2)
    assert stream.heard == [(aten.add.Tensor, (x, 1), {"alpha": 2}, y)]


def test_an_operator_on_a_wrapper_is_heard_before_those_on_its_leaves() -> None:
    a, b = MetaTensor(torch.ones(2)), MetaTensor(torch.ones(2))
    wrapper = TwoTensor(a, b)
    with Hearing() as stream:
        result = wrapper.neg()
    on_wrapper, *on_leaves = stream.heard
    assert on_wrapper == (aten.neg.default, (wrapper,), {})
    assert on_leaves == [(aten.neg.default, (a,), {}, result.a), (aten.neg.default, (b,), {}, result.b)]


def test_a_lazy_view_is_computed_and_heard() -> None:
    x = MetaTensor(torch.ones(2, dtype=torch.complex64))
    with Hearing() as stream:
        y = x.conj()
    (computed, (_, source, copy)) = stream.heard
    assert computed[0] is aten._conj_physical.default and source is x and copy is y


def test_a_leaf_that_is_given_other_data_is_heard_of() -> None:
    x, other = MetaTensor(torch.ones(2)), MetaTensor(torch.ones(3))
    with Hearing() as stream:
        x.data = other
    assert ("replaced", x, other) in [heard[:3] for heard in stream.heard if heard[0] == "replaced"]
    assert x.shape == (3,)


def test_who_knows_nothing_has_no_values_to_give() -> None:
    x = MetaTensor(torch.ones(()))
    with Stream() as stream:
        assert stream.value_of(x) is None and stream.known(x) is None and stream.look(x) is None
        with pytest.raises(DataDependentError, match="asks for values"):
            x.item()
