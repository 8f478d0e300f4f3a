"""What a wrapper looks like from outside."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.errors import DefinitionError
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from tests.kit.wrapper.classes import Labelled


def test_outer_like() -> None:
    tensor = torch.zeros(6)[1:].view(5, 1)
    assert Outer.like(tensor) == ((5, 1), (1, 1), torch.float32, torch.device("cpu"), torch.strided, 1)
    assert Outer.like(tensor, dtype=torch.int8).storage_offset == 1
    assert Outer.like(tensor, size=(2, 2)).stride is None
    with pytest.raises(TypeError, match="sizes"):
        Outer.like(tensor, sizes=(2, 2))


class Packed(Labelled):
    """Two codes in a byte."""

    def outer_metadata(self) -> Outer:
        below = super().outer_metadata()
        return Outer.like(self.codes, dtype=below.dtype, size=(self.codes.shape[0], 2 * self.codes.shape[1]))


def test_outer_rule_sees_fields_methods_and_super() -> None:
    scaled = Labelled(torch.zeros(2, 3, dtype=torch.int8).t(), torch.zeros(3, 1, dtype=torch.float64))
    assert (scaled.shape, scaled.stride(), scaled.dtype) == ((3, 2), (1, 3), torch.float64)
    packed = Packed(torch.zeros(4, 3, dtype=torch.int8)[1:], torch.zeros(3, 1, dtype=torch.bfloat16))
    assert (packed.shape, packed.stride(), packed.dtype) == ((3, 6), (6, 1), torch.bfloat16)
    assert packed.storage_offset() == 0


def test_outer_rule_with_unflatten_at_another_size() -> None:
    packed = Packed(torch.zeros(3, 3, dtype=torch.int8), torch.zeros(3, 1))
    _, context = packed.__tensor_flatten__()
    inner = {"codes": torch.zeros(5, 4, dtype=torch.int8), "scale": torch.zeros(5, 1)}
    again = Packed.__tensor_unflatten__(inner, context, (5, 8), (8, 1))
    assert again.shape == (5, 8) and again.dtype == torch.float32
    assert Packed.__tensor_unflatten__(inner, context).shape == (5, 8)


def test_outer_rule_must_return_outer() -> None:
    class Bad(WrapperTensor):
        codes: torch.Tensor

        def outer_metadata(self) -> torch.Size:
            return self.codes.shape

    with pytest.raises(DefinitionError, match=r"Bad\.outer_metadata returned torch\.Size\(\[2\]\), not an Outer"):
        Bad(torch.zeros(2))


def old_rule(self: Any) -> Outer:
    return Outer.like(self.codes, dtype=torch.float64)


def test_a_rule_of_the_old_name_is_read_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"Old\.outer is called outer_metadata now") as caught:

        class Old(WrapperTensor):
            codes: torch.Tensor
            outer = old_rule

    assert (caught[0].filename, caught[0].lineno) == (__file__, old_rule.__code__.co_firstlineno)
    x = Old(torch.ones(2))
    assert x.dtype == x.outer().dtype == x.outer_metadata().dtype == torch.float64  # type: ignore[attr-defined]

    class New(Old):
        def outer_metadata(self) -> Outer:
            return super().outer_metadata()._replace(dtype=torch.float16)  # type: ignore[misc, no-any-return]

    assert New(torch.ones(2)).dtype == torch.float16
    with pytest.warns(DeprecationWarning, match="Again"):

        class Again(New):
            def outer(self) -> Any:  # type: ignore[override]
                return super().outer()._replace(dtype=torch.bfloat16)  # type: ignore[call-arg, misc, operator]

    assert Again(torch.ones(2)).dtype == torch.bfloat16


def test_a_rule_of_the_old_name_in_a_mixin() -> None:
    class Mixin:
        outer = old_rule

    with pytest.warns(DeprecationWarning, match="Mixed"):

        class Mixed(Mixin, WrapperTensor):
            codes: torch.Tensor

    assert Mixed(torch.ones(2)).dtype == torch.float64


def test_an_old_rule_that_is_a_static_method_is_warned_of_at_its_line() -> None:
    with pytest.warns(DeprecationWarning, match="Static") as caught:

        class Static(WrapperTensor):
            codes: torch.Tensor
            outer = staticmethod(old_rule)

    assert (caught[0].filename, caught[0].lineno) == (__file__, old_rule.__code__.co_firstlineno)
    assert Static(torch.ones(2)).dtype == torch.float64


@pytest.mark.parametrize("name", ["outer", "outer_metadata"])
def test_a_rule_that_is_no_method_is_named(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"Wrong\.{name} must be a method, not torch.float16"):
        type("Wrong", (WrapperTensor,), {"__annotations__": {"codes": torch.Tensor}, name: torch.float16})


def test_a_class_with_both_names_or_with_a_product_of_its_own_gets_no_warning(recwarn: Any) -> None:
    class Both(WrapperTensor):
        codes: torch.Tensor
        outer = old_rule

        def outer_metadata(self) -> Outer:
            return Outer.like(self.codes, dtype=torch.float16)

    class Product(Both):
        def outer(self, vec2: torch.Tensor) -> Any:
            return self.codes.outer(vec2)

    assert (Both(torch.ones(2)).dtype, Product(torch.ones(2)).dtype) == (torch.float16, torch.float16)
    assert Product(torch.ones(2)).outer(torch.ones(3)).shape == (2, 3)

    class Below(Product):
        def outer_metadata(self) -> Outer:
            return Outer.like(self.codes, dtype=torch.bfloat16)

    assert Below(torch.ones(2)).dtype == torch.bfloat16 and Below.outer is Product.outer
    assert not recwarn.list


def test_default_outer_skips_absent_fields() -> None:
    class Maybe(WrapperTensor):
        first: torch.Tensor | None
        second: torch.Tensor

    assert Maybe(None, torch.zeros(7)).shape == (7,)
    assert Maybe(torch.zeros(3), torch.zeros(7)).shape == (3,)
