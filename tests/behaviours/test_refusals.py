"""What cannot be traced is refused with the operator, the user's line and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import UnsupportedOperatorException

from subclass_aot import register_meta
from subclass_aot.errors import DataDependentError, ShapeRuleError, SubclassAotError
from subclass_aot.testing import difference


@pytest.mark.inductor("two")
@pytest.mark.parametrize(
    ("program", "operator"),
    [
        (lambda x: x * x.sum().item(), "aten._local_scalar_dense"),
        (lambda x: x * 2 if x.sum() > 0 else x, "aten._local_scalar_dense"),
        (lambda x: x.nonzero(), "aten.nonzero"),
        (lambda x: x.masked_select(x > 1), "aten.masked_select"),
        (lambda x: torch.unique(x), "aten._unique2"),
    ],
    ids=["item", "if", "nonzero", "masked_select", "unique"],
)
def test_data_dependent_operator(kind: Any, program: Any, operator: str, build: Any) -> None:
    x = kind(3, 4)
    leaves = [leaf.clone() for leaf in kind.leaves(x)]
    with pytest.raises(DataDependentError) as info:
        build(program, values="refuse")(x)
    message = str(info.value)
    assert operator in message and "test_refusals.py" in message and "Instead" in message
    assert all(a.equal(b) for a, b in zip(kind.leaves(x), leaves, strict=True))


@pytest.fixture
def custom() -> Iterator[Any]:
    with torch.library._scoped_library("behaviours", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        yield torch.ops.behaviours.twice.default


@pytest.mark.inductor("two")
def test_custom_operator_without_a_shape_rule(kind: Any, custom: Any, compiler: str, build: Any) -> None:
    def program(x: Any) -> Any:
        return custom(x) + 1

    x = kind(3, 4)
    with pytest.raises(ShapeRuleError) as info:
        build(program)(x)
    message = str(info.value)
    assert isinstance(info.value, SubclassAotError)
    assert "behaviours.twice" in message and "return custom(x) + 1" in message and "register_meta" in message
    register_meta(custom)(lambda x: torch.empty_like(x))
    if compiler == "inductor":  # which asks torch for the shape: with an error of its own, until torch has a rule, too
        with pytest.raises(UnsupportedOperatorException, match="behaviours.twice"):
            build(program)(x)
        torch.library.register_fake("behaviours::twice", lambda x: torch.empty_like(x))
    assert not difference(program(x), build(program)(x))
