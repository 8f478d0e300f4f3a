"""Constructor, flatten, unflatten and the outer rule."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from subclass_aot.errors import DefinitionError, InnerTensorError
from subclass_aot.wrapper import Outer, WrapperTensor


class Everything(WrapperTensor):
    first: torch.Tensor
    parts: list[torch.Tensor]
    table: dict[str, torch.Tensor]
    extra: torch.Tensor | None = None
    bits: int = 8


class Scaled(WrapperTensor):
    codes: torch.Tensor
    scale: torch.Tensor
    label: str = "w"

    def dtype_outside(self) -> torch.dtype:
        return self.scale.dtype

    def outer(self) -> Outer:
        return Outer.like(self.codes, dtype=self.dtype_outside())


class Packed(Scaled):
    """Two codes in a byte."""

    def outer(self) -> Outer:
        below = super().outer()
        return Outer.like(self.codes, dtype=below.dtype, size=(self.codes.shape[0], 2 * self.codes.shape[1]))


def everything(**changes: object) -> Everything:
    fields: dict[str, object] = {
        "first": torch.zeros(2, 3),
        "parts": [torch.ones(1), torch.ones(2)],
        "table": {"left": torch.ones(3), "right": torch.ones(4)},
    }
    return Everything(**{**fields, **changes})


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


def test_outer_rule_sees_fields_methods_and_super() -> None:
    scaled = Scaled(torch.zeros(2, 3, dtype=torch.int8).t(), torch.zeros(3, 1, dtype=torch.float64))
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

        def outer(self) -> torch.Size:
            return self.codes.shape

    with pytest.raises(DefinitionError, match=r"Bad\.outer returned torch\.Size\(\[2\]\), not an Outer"):
        Bad(torch.zeros(2))


def test_default_outer_skips_absent_fields() -> None:
    class Maybe(WrapperTensor):
        first: torch.Tensor | None
        second: torch.Tensor

    assert Maybe(None, torch.zeros(7)).shape == (7,)
    assert Maybe(torch.zeros(3), torch.zeros(7)).shape == (3,)


def test_wrong_inner_tensors() -> None:
    with pytest.raises(InnerTensorError, match=r"Scaled\.scale requires grad.*outer tensor") as error:
        Scaled(torch.zeros(2), torch.zeros(2, requires_grad=True))
    assert "scale=scale.detach()" in str(error.value)
    with pytest.raises(InnerTensorError, match=r"Scaled\.codes must be a tensor, not int: 3"):
        Scaled(3, torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Scaled\.codes has its conjugate bit set"):
        Scaled(torch.zeros(2, dtype=torch.complex64).conj(), torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Scaled\.codes has its negative bit set"):
        Scaled(torch.zeros(2, dtype=torch.complex64).conj().imag, torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Scaled\.label is context and was given a tensor"):
        Scaled(torch.zeros(2), torch.zeros(2), torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Scaled\.label is context and was given \[1\], which cannot be hashed"):
        Scaled(torch.zeros(2), torch.zeros(2), [1])
    with pytest.raises(InnerTensorError, match=r"Everything\.parts must be a list or tuple"):
        everything(parts=torch.zeros(2))
    with pytest.raises(InnerTensorError, match=r"Everything\.parts_1 must be a tensor"):
        everything(parts=[torch.zeros(2), 1])
    with pytest.raises(InnerTensorError, match=r"Everything\.table must be a dict"):
        everything(table={"not an identifier": torch.zeros(2)})
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'scale'"):
        Scaled(torch.zeros(2))


def test_generated_methods_are_readable() -> None:
    assert "hold_tensor(cls, state, field_codes, codes)" in inspect.getsource(Scaled.__new__)
    assert "names = ['codes', 'scale']" in inspect.getsource(Scaled.__tensor_flatten__)
    assert list(inspect.signature(Everything.__new__).parameters) == ["cls", *Everything.__wrapper_declaration__.fields]


def test_attributes_for_a_context_make_an_instance() -> None:
    wrapper = everything(bits=3)
    names, context = wrapper.__tensor_flatten__()
    attributes = Everything.__wrapper_attributes__(tuple(names), context)
    inner = {name: getattr(wrapper, name) for name in names}
    assert {**inner, **attributes}.keys() == vars(wrapper).keys()
    assert all(vars(wrapper)[name] == value for name, value in attributes.items())


@pytest.mark.parametrize("method", ["__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__"])
def test_an_author_who_writes_a_generated_method_is_left_alone(method: str) -> None:
    def written(*args: object, **kwargs: object) -> None: ...

    cls = type("Own", (WrapperTensor,), {"__annotations__": {"codes": torch.Tensor}, method: written})
    derived = type("Derived", (cls,), {})
    assert getattr(derived, method) is written and method not in vars(derived)
    assert cls.__wrapper_attributes__ is None and derived.__wrapper_attributes__ is None


@pytest.mark.parametrize("device", ["meta", "fake"])
def test_repr_and_constructor_on_tensors_without_values(device: str) -> None:
    if device == "fake":
        with FakeTensorMode():
            wrapper = Scaled(torch.zeros(2, 3, dtype=torch.int8), torch.zeros(2, 1))
        expected = "Scaled(float32[2, 3], codes=int8[2, 3], scale=float32[2, 1], label='w')"
    else:
        wrapper = Scaled(torch.zeros(2, 3, dtype=torch.int8, device=device), torch.zeros(2, 1, device=device))
        expected = "Scaled(float32[2, 3] meta, codes=int8[2, 3] meta, scale=float32[2, 1] meta, label='w')"
    assert repr(wrapper) == expected


def test_repr_of_lists_gradients_and_nesting() -> None:
    wrapper = everything().requires_grad_()
    assert repr(wrapper).endswith("table_right=float32[4], bits=8, requires_grad=True)")

    class Pair(WrapperTensor, fallback="each"):
        left: torch.Tensor
        right: torch.Tensor

    inner = Pair(torch.zeros(2), torch.zeros(2))
    nested = Pair(inner, torch.zeros(2)).requires_grad_() * 2
    assert repr(nested) == (
        "Pair(float32[2], left=Pair(float32[2], left=float32[2], right=float32[2]), right=float32[2], "
        "grad_fn=<MulBackward0>)"
    )


def test_stable_hash_depends_on_everything_but_values() -> None:
    base = everything()._stable_hash_for_caching()
    assert everything(first=torch.ones(2, 3))._stable_hash_for_caching() == base
    changed = [everything(bits=4), everything(first=torch.zeros(3, 2).t()), everything(extra=torch.zeros(1))]
    assert len({base, *(wrapper._stable_hash_for_caching() for wrapper in changed)}) == 4


def test_outer_like() -> None:
    tensor = torch.zeros(6)[1:].view(5, 1)
    assert Outer.like(tensor) == ((5, 1), (1, 1), torch.float32, torch.device("cpu"), torch.strided, 1)
    assert Outer.like(tensor, dtype=torch.int8).storage_offset == 1
    assert Outer.like(tensor, size=(2, 2)).stride is None
    with pytest.raises(TypeError, match="sizes"):
        Outer.like(tensor, sizes=(2, 2))


def test_nan_context_does_not_break_equality_of_one_object() -> None:
    wrapper = Scaled(torch.zeros(2), torch.zeros(2), math.nan)
    assert wrapper.__tensor_flatten__() == wrapper.__tensor_flatten__()
