"""Copying and saving, and files that were written by an earlier version of a class."""

from __future__ import annotations

import copy
import enum
import gc
import io
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot.errors import InnerTensorError
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from subclass_aot.kit.wrapper.serialize import rebuild_wrapper


class Mode(enum.Enum):
    ROWS = "rows"
    COLUMNS = "columns"


class Saved(WrapperTensor, fallback="each"):
    codes: torch.Tensor
    parts: list[torch.Tensor]
    table: dict[str, torch.Tensor]
    zero: torch.Tensor | None = None
    order: Mode = Mode.ROWS
    dtype_seen: torch.dtype = torch.float32


def saved(**changes: Any) -> Saved:
    shared = torch.arange(6.0)
    fields = {"codes": shared, "parts": [shared[2:], torch.ones(2)], "table": {"left": shared}, "order": Mode.COLUMNS}
    return Saved(**{**fields, **changes})


def through_torch(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


WAYS = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "torch.load": through_torch,
    "copy": copy.copy,
}


def assert_same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    names, context = expected.__tensor_flatten__()
    assert actual.__tensor_flatten__() == (names, context)
    for name in names:
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name))
    assert (actual.shape, actual.stride(), actual.dtype, actual.requires_grad) == (
        expected.shape,
        expected.stride(),
        expected.dtype,
        expected.requires_grad,
    )


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_there_and_back(way: Any) -> None:
    for value in (saved(), saved(zero=torch.zeros(3)), saved().requires_grad_(), saved(codes=torch.zeros(2, 3).t())):
        assert_same(way(value), value)


@pytest.mark.parametrize("way", ["deepcopy", "torch.load"])
def test_what_was_shared_stays_shared(way: str) -> None:
    value = saved()
    first, second = WAYS[way]([value, value.table["left"]])
    first.codes[2] = 100
    assert first.parts[0][0] == 100 and first.table["left"][2] == 100 and second[2] == 100
    assert value.codes[2] == 2
    one, other = WAYS[way]([value, value])
    assert one is other


def test_copy_shares_inner_tensors() -> None:
    value = saved()
    assert copy.copy(value).codes is value.codes


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_parameters_and_attributes(way: Any) -> None:
    parameter = torch.nn.Parameter(saved())
    parameter.note = ("kept", 1)
    result = way(parameter)
    assert isinstance(result, torch.nn.Parameter) and type(result) is Saved
    assert result.requires_grad and result.note == ("kept", 1)


def test_deepcopy_of_gradients_and_of_computed_tensors() -> None:
    value = saved().requires_grad_()
    value.sum().backward()
    again = copy.deepcopy(value)
    assert_same(again.grad, value.grad)
    assert again.grad is not value.grad
    with pytest.raises(RuntimeError, match="only leaves can be deep-copied: this Saved was computed by MulBackward0"):
        copy.deepcopy(value * 2)


def test_nested_wrappers() -> None:
    class Pair(WrapperTensor):
        left: torch.Tensor
        right: torch.Tensor

    value = Pair(saved(), torch.zeros(2))
    result = copy.deepcopy(value)
    assert_same(result.left, value.left)
    result = through_torch(Nested(saved(), torch.zeros(2)))
    assert type(result) is Nested and type(result.left) is Saved


class Fewer(WrapperTensor):
    codes: torch.Tensor


class Nested(WrapperTensor):
    left: torch.Tensor
    right: torch.Tensor


def old_file(cls: Any, *forget: str) -> Any:
    """What a file gives that was written when the class had not yet the fields `forget`."""
    _, (_, inner, attributes, others, size, stride, requires_grad) = saved(zero=torch.ones(1)).__reduce_ex__(2)
    for name in forget:
        inner = {key: value for key, value in inner.items() if not key.startswith(name)}
        attributes = {key: value for key, value in attributes.items() if name not in key}
    return rebuild_wrapper(cls, inner, attributes, others, size, stride, requires_grad)


class Written(WrapperTensor):
    """Its author writes what is generated for others, and has the context in a form of his own."""

    codes: torch.Tensor
    bits: int = 0

    def __tensor_flatten__(self) -> Any:
        return ["codes"], {"width": self.bits}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        return cls(inner["codes"], context["width"])


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_class_that_writes_flatten_itself(way: Any) -> None:
    value = Written(torch.arange(3.0), 4).requires_grad_()
    value.note = "kept"
    result = way(value)
    assert_same(result, value)
    assert result.bits == 4 and result.note == "kept"


NEW_DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32]
"""Of which `pickle` takes no plain tensor."""


class Codes(WrapperTensor):
    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Any:
        return Outer.like(self.codes, dtype=self.scale.dtype)


def with_codes(dtype: torch.dtype) -> Codes:
    memory = torch.arange(24, dtype=torch.float32).to(dtype).reshape(4, 6)
    return Codes(memory.t()[1:], torch.ones(1))


def assert_same_codes(actual: Any, expected: Any) -> None:
    assert (actual.codes.dtype, actual.codes.stride()) == (expected.codes.dtype, expected.codes.stride())
    assert actual.codes.tolist() == expected.codes.tolist()
    assert (actual.shape, actual.stride(), actual.dtype) == (expected.shape, expected.stride(), expected.dtype)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize("dtype", NEW_DTYPES, ids=str)
def test_inner_tensors_of_dtypes_that_pickle_does_not_take(dtype: torch.dtype, way: Any) -> None:
    with pytest.raises(AttributeError, match="UntypedStorage"):
        pickle.loads(pickle.dumps(torch.zeros(2).to(dtype)))  # torch's; when it goes, so may what is here
    assert_same_codes(way(with_codes(dtype)), with_codes(dtype))
    nested = way(Nested(with_codes(dtype), torch.zeros(5, 4)))
    assert_same_codes(nested.left, with_codes(dtype))
    written = way(Written(torch.zeros(3).to(dtype), 8))
    assert written.codes.dtype == dtype and written.codes.tolist() == [0, 0, 0] and written.bits == 8


@pytest.mark.parametrize("way", ["copy", "torch.load"])
def test_their_memory_stays_shared(way: str) -> None:
    value = with_codes(torch.float8_e4m3fn)
    first, codes = (copy.copy(value), value.codes) if way == "copy" else WAYS[way]([value, value.codes])
    codes[0, 0] = 2
    assert first.codes[0, 0].item() == 2


class WrittenBefore:
    """What files hold that have such inner tensors as they are: `torch.save` always took them."""

    def __reduce__(self) -> Any:
        value = with_codes(torch.float8_e4m3fn)
        inner = {"codes": value.codes, "scale": value.scale}
        return rebuild_wrapper, (Codes, inner, {}, {}, tuple(value.shape), value.stride(), False)


def test_files_of_earlier_versions_are_read() -> None:
    assert_same_codes(through_torch(WrittenBefore()), with_codes(torch.float8_e4m3fn))


def test_files_are_mapped_into_memory(tmp_path: Path) -> None:
    torch.save(with_codes(torch.float8_e4m3fn), tmp_path / "file")
    for options in ({"mmap": True}, {"map_location": "meta"}):
        loaded = torch.load(tmp_path / "file", weights_only=True, **options)
        assert loaded.codes.dtype == torch.float8_e4m3fn and loaded.codes.stride() == (1, 6)
    assert loaded.codes.is_meta


def test_files_older_than_a_field() -> None:
    assert old_file(Saved, "zero").zero is None
    assert old_file(Saved, "order").order is Mode.ROWS
    assert old_file(Saved, "parts").parts == ()
    assert dict(old_file(Saved, "table").table) == {}
    with pytest.raises(InnerTensorError, match=r"this saved Saved has no codes.*torch\.Tensor \| None = None"):
        old_file(Saved, "codes")
    with pytest.raises(InnerTensorError, match=r"this saved Fewer holds \['_parts_layout', .* does not declare"):
        old_file(Fewer)


class Renamed(WrapperTensor, renamed={"codes": "payload", "parts": "pieces", "table": "tables", "order": "sequence"}):
    payload: torch.Tensor
    pieces: list[torch.Tensor]
    tables: dict[str, torch.Tensor]
    zero: torch.Tensor | None = None
    sequence: Mode = Mode.ROWS
    dtype_seen: torch.dtype = torch.float32


def test_files_older_than_a_name() -> None:
    expected = saved(zero=torch.ones(1))
    found = old_file(Renamed)
    assert found.payload.equal(expected.codes) and found.zero.equal(torch.ones(1))
    assert [piece.tolist() for piece in found.pieces] == [part.tolist() for part in expected.parts]
    assert list(found.tables) == ["left"] and found.sequence is Mode.COLUMNS
    assert_same(through_torch(found), found)


def test_files_that_have_a_field_by_both_names() -> None:
    _, (_, inner, attributes, others, size, stride, _) = saved().__reduce_ex__(2)
    with pytest.raises(InnerTensorError, match=r"holds \['codes', .*'payload', .* two are one field by renamed="):
        rebuild_wrapper(Renamed, {**inner, "payload": torch.ones(6)}, attributes, others, size, stride, False)


def test_no_reference_cycles() -> None:
    gc.disable()
    try:
        value = saved() + 1
        inner = weakref.ref(value.codes)
        outer = weakref.ref(value)
        copy.deepcopy(value.detach())
        del value
        assert outer() is None and inner() is None
    finally:
        gc.enable()
