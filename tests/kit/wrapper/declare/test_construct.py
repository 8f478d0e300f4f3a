"""Constructor, flatten, unflatten."""

from __future__ import annotations

import inspect
import math

import pytest
import torch

from subclass_aot.errors import InnerTensorError
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from tests.kit.wrapper.classes import Everything, Labelled, Pair, everything, pair


def test_names_and_context() -> None:
    names, context = everything().__tensor_flatten__()
    assert names == ["first", "parts_0", "parts_1", "table_left", "table_right"]
    assert context == (2, ("left", "right"), False, 8)
    names, other = everything(extra=torch.ones(5), bits=4).__tensor_flatten__()
    assert names == ["first", "parts_0", "parts_1", "table_left", "table_right", "extra"]
    assert other == (2, ("left", "right"), True, 4)
    assert hash(context) != hash(other)


def test_fields_of_several_tensors() -> None:
    wrapper = everything()
    assert [part.shape[0] for part in wrapper.parts] == [1, 2]
    assert {key: tensor.shape[0] for key, tensor in wrapper.table.items()} == {"left": 3, "right": 4}
    assert wrapper.extra is None
    with pytest.raises(TypeError):
        wrapper.table["left"] = torch.zeros(3)


@pytest.mark.parametrize("extra", [None, torch.ones(5)])
def test_round_trip_keeps_identity_and_honours_the_outer_metadata(extra: torch.Tensor | None) -> None:
    wrapper = everything(extra=extra)
    names, context = wrapper.__tensor_flatten__()
    inner = {name: getattr(wrapper, name) for name in names}
    again = Everything.__tensor_unflatten__(inner, context, (3, 2), (1, 3))
    assert type(again) is Everything
    assert again.__tensor_flatten__() == (names, context)
    assert all(getattr(again, name) is inner[name] for name in names)
    assert tuple(again.shape) == (3, 2) and again.stride() == (1, 3)
    assert Everything.__tensor_unflatten__(inner, context).shape == wrapper.shape


def test_a_class_without_context_has_none() -> None:
    class Alone(WrapperTensor):
        only: torch.Tensor

    assert Alone(torch.zeros(2)).__tensor_flatten__() == (["only"], None)


def test_wrong_inner_tensors() -> None:
    with pytest.raises(InnerTensorError, match=r"Labelled\.codes must be a tensor, not int: 3"):
        Labelled(3, torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Labelled\.codes has its conjugate bit set"):
        Labelled(torch.zeros(2, dtype=torch.complex64).conj(), torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Labelled\.codes has its negative bit set"):
        Labelled(torch.zeros(2, dtype=torch.complex64).conj().imag, torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Labelled\.label is context and was given a tensor"):
        Labelled(torch.zeros(2), torch.zeros(2), torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Labelled\.label is context and was given \[1\], which cannot be"):
        Labelled(torch.zeros(2), torch.zeros(2), [1])
    with pytest.raises(InnerTensorError, match=r"Everything\.parts must be a list or tuple"):
        everything(parts=torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Everything\.parts_1 must be a tensor"):
        everything(parts=[torch.zeros(2), 1])
    with pytest.raises(InnerTensorError, match=r"Everything\.table must be a dict"):
        everything(table={"not an identifier": torch.zeros(2)})
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'scale'"):
        Labelled(torch.zeros(2))


def test_generated_methods_are_readable() -> None:
    assert "hold_tensor(cls, state, field_codes, codes)" in inspect.getsource(Labelled.__new__)
    assert "names = ['codes', 'scale']" in inspect.getsource(Labelled.__tensor_flatten__)
    assert list(inspect.signature(Everything.__new__).parameters) == ["cls", *Everything.__wrapper_declaration__.fields]


def test_attributes_for_a_context_make_an_instance() -> None:
    wrapper = everything(bits=3)
    names, context = wrapper.__tensor_flatten__()
    attributes = Everything.__wrapper_attributes__(tuple(names), context)
    inner = {name: getattr(wrapper, name) for name in names}
    assert {**inner, **attributes}.keys() == vars(wrapper).keys()
    assert all(vars(wrapper)[name] == value for name, value in attributes.items())


def test_nan_context_does_not_break_equality_of_one_object() -> None:
    wrapper = Labelled(torch.zeros(2), torch.zeros(2), math.nan)
    assert wrapper.__tensor_flatten__() == wrapper.__tensor_flatten__()


def test_an_assigned_field_is_checked_as_the_constructor_checks_it() -> None:
    x = Pair(torch.ones(2), torch.zeros(2))
    negative = torch.complex(torch.ones(2), torch.ones(2)).conj().imag
    for wrong, match in (
        (torch.ones(2, requires_grad=True), "left requires grad"),
        (negative, "left has its negative bit set"),
        (3, "left must be a tensor, not int"),
        (None, "left must be a tensor, not NoneType"),
        (torch.ones(5), r"left: with it the tensor would have the size \(5,\), and it has \(2,\)"),
        (torch.ones(2, dtype=torch.float64), "would have the dtype torch.float64"),
        (torch.ones(4)[::2], r"would have the stride \(2,\)"),
    ):
        before = x.left
        with pytest.raises(InnerTensorError, match=match):
            x.left = wrong
        assert x.left is before
    x.left = new = torch.full((2,), 3.0)
    assert x.left is new and (x + 0).left.eq(3).all()
    x.noted = "an attribute that is no field"
    assert x.noted == "an attribute that is no field"


class Listed(WrapperTensor):
    """A tensor whose class gives its size and strides in lists."""

    codes: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, size=[*self.codes.shape], stride=[*self.codes.stride()])


def test_a_field_is_assigned_where_sizes_and_strides_are_lists() -> None:
    x, codes = Listed(torch.ones(2, 3)), torch.zeros(2, 3)
    x.codes = codes
    assert x.codes is codes


def test_assigned_optional_fields_lists_and_dicts() -> None:
    x = everything()
    for value in (torch.ones(2), None, torch.ones(2)):
        x.extra = value
        assert x.extra is value and ("extra" in x.__tensor_flatten__()[0]) == (value is not None)
    x.parts = [torch.full((2,), 7.0)]
    assert len(x.parts) == 1 and x.parts[0].eq(7).all() and "parts_1" not in vars(x)
    x.parts_0 = torch.full((2,), 8.0)
    assert x.parts[0].eq(8).all()
    x.table = {"middle": torch.ones(1)}
    assert list(x.table) == ["middle"] and "table_left" not in vars(x)
    with pytest.raises(InnerTensorError, match="parts_0 requires grad"):
        x.parts_0 = torch.ones(2, requires_grad=True)
    with pytest.raises(InnerTensorError, match="must be a list or tuple"):
        x.parts = torch.ones(2)
    with pytest.raises(InnerTensorError, match="bits"):
        x.bits = []
    x.bits = 4
    assert x.__tensor_flatten__()[1] == (1, ("middle",), True, 4)


def test_unflatten_refuses_what_operators_would_pass_over() -> None:
    negative = torch.complex(torch.ones(2), torch.ones(2)).conj().imag
    for cls, name in ((Pair, "left"), (Everything, "first")):
        for wrong, match in ((torch.ones(2, requires_grad=True), "requires grad"), (negative, "its negative bit")):
            good = pair(2) if cls is Pair else everything()
            names, context = good.__tensor_flatten__()
            inner = {n: getattr(good, n) for n in names} | {name: wrong}
            with pytest.raises(InnerTensorError, match=f"{name} .*{match}"):
                cls.__tensor_unflatten__(inner, context, good.size(), good.stride())


def test_a_key_that_would_hide_what_every_tensor_has() -> None:
    class Table(WrapperTensor):
        value: torch.Tensor
        requires: dict[str, torch.Tensor]

    with pytest.raises(InnerTensorError, match="has the key 'grad', and would keep that tensor as `requires_grad`"):
        Table(torch.zeros(2), {"grad": torch.ones(2)})
    assert Table(torch.zeros(2), {"this": torch.ones(2)}).requires["this"].equal(torch.ones(2))
