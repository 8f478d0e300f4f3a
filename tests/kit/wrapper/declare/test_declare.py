"""What a class statement makes of a class."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.errors import DefinitionError
from subclass_aot.kit.wrapper import WrapperTensor
from tests.kit.wrapper.classes import fresh


@pytest.mark.parametrize(
    ("keywords", "parts"),
    [
        ({"fallback": "every"}, ["fallback='every'", 'fallback="each"']),
        ({"fallback": "plain"}, ["needs a method to_plain"]),
        ({"views": "rows"}, ["views='rows'", 'views="broadcast"']),
        ({"views": {"table": "keep"}}, ["views={'table': 'keep'}", "names of tensor fields"]),
        ({"views": {"codes": "drop"}}, ["views={'codes': 'drop'}"]),
    ],
)
def test_wrong_keywords(keywords: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(DefinitionError) as error:
        type("Wrong", (WrapperTensor,), {"__annotations__": {"codes": torch.Tensor}}, **keywords)
    for part in ["Wrong: ", *parts]:
        assert part in str(error.value)


def test_to_plain_is_a_fallback_unless_another_is_given_or_inherited() -> None:
    plain = {"to_plain": lambda self: self.payload}
    classes = {keyword: type("Derived", (fresh(),), plain, fallback=keyword) for keyword in (None, "each", "error")}
    assert [cls.__wrapper_declaration__.fallback for cls in classes.values()] == ["plain", "each", "error"]
    assert type("Derived", (fresh(fallback="each"),), plain).__wrapper_declaration__.fallback == "each"


def test_fallbacks_are_inherited_and_the_nearest_counts() -> None:
    base = fresh(fallback="each", views="broadcast")
    other = type("Other", (base,), {}, views={"payload": "keep"})
    both = type("Both", (other, base), {})
    assert other.__wrapper_declaration__.fallback == both.__wrapper_declaration__.fallback == "each"
    assert base.__wrapper_declaration__.views == {}
    assert other.__wrapper_declaration__.views == both.__wrapper_declaration__.views == {"payload": "keep"}


def test_each_class_keeps_its_own_rules_and_handlers() -> None:
    base = fresh(fallback="each")
    derived = type("Derived", (base,), {})
    derived.implements(torch.ops.aten.neg.default)(lambda self: torch.tensor([1.0]))
    assert derived(torch.ones(1)).neg().item() == 1 and type(base(torch.ones(2)).neg()) is base


@pytest.mark.parametrize("method", ["__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__"])
def test_an_author_who_writes_a_generated_method_is_left_alone(method: str) -> None:
    def written(*args: object, **kwargs: object) -> None: ...

    cls = type("Own", (WrapperTensor,), {"__annotations__": {"codes": torch.Tensor}, method: written})
    derived = type("Derived", (cls,), {})
    assert getattr(derived, method) is written and method not in vars(derived)
    assert cls.__wrapper_attributes__ is None and derived.__wrapper_attributes__ is None


@pytest.mark.parametrize("renamed", [{"codes": "payload"}, {"old": "gone"}, ["old"], {"payload": "payload"}])
def test_wrong_names_of_earlier_versions(renamed: object) -> None:
    annotations = {"codes": torch.Tensor, "payload": torch.Tensor}
    with pytest.raises(DefinitionError, match=r"Wrong: renamed=.*does not say which fields"):
        type("Wrong", (WrapperTensor,), {"__annotations__": annotations}, renamed=renamed)


def test_names_of_earlier_versions_are_those_of_all_bases() -> None:
    base = fresh(renamed={"body": "payload"})
    derived = type("Derived", (base,), {"__annotations__": {"mark": int}}, renamed={"sign": "mark"})
    assert dict(derived.__wrapper_declaration__.renamed) == {"body": "payload", "sign": "mark"}
    assert dict(type("Further", (derived,), {}).__wrapper_declaration__.renamed) == {"body": "payload", "sign": "mark"}
    assert dict(base.__wrapper_declaration__.renamed) == {"body": "payload"}
