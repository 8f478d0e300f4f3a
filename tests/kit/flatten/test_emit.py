"""The code that is appended: its text, and what it does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot.base.codegen import Source
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import create_subclass_meta, emit_unwrap, emit_wrap

pytestmark = pytest.mark.usefixtures("either_way")


class Blocks(torch.Tensor):
    """Codes and an optional scale, with the fast constructor protocol; its `__new__` counts how often it runs."""

    built = 0

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor | None = None, block_size: int = 64) -> Blocks:
        cls.built += 1
        blocks = torch.Tensor._make_wrapper_subclass(cls, codes.shape, strides=codes.stride(), dtype=torch.float32)
        blocks.codes, blocks.scale, blocks.block_size = codes, scale, block_size
        return blocks

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["codes"] + ["scale"] * (self.scale is not None), self.block_size

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Blocks:
        return cls(inner["codes"], inner.get("scale"), context)

    @classmethod
    def __wrapper_attributes__(cls, names: tuple[str, ...], context: Any) -> dict[str, object]:
        return {"block_size": context} | ({} if "scale" in names else {"scale": None})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class Odd(torch.Tensor):
    """Inner tensors whose names are no identifiers, in lists and dicts, or absent."""

    names = ("class", "a.b", "parts", "none")

    @staticmethod
    def __new__(cls, inner: dict[str, Any]) -> Odd:
        odd = torch.Tensor._make_wrapper_subclass(cls, (2,))
        odd.__dict__.update(inner)
        return odd

    def __tensor_flatten__(self) -> tuple[tuple[str, ...], Any]:
        return self.names, None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Odd:
        return Odd(inner)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class FastOdd(Odd):
    @classmethod
    def __wrapper_attributes__(cls, names: tuple[str, ...], context: Any) -> dict[str, object]:
        return {}


def reader(value: Any, **options: Any) -> tuple[Source, Any]:
    source = Source("read", "x")
    leaves = emit_unwrap(source, create_subclass_meta([value])[0], "x", where="x", **options)
    source.line(f"return [{', '.join(leaves)}]")
    return source, source.build()


def writer(value: Any) -> tuple[Source, Any]:
    (meta,) = create_subclass_meta([value])
    names = [f"l{i}" for i in range(meta.arg_count)]
    source = Source("write", ", ".join(names))
    source.line(f"return {emit_wrap(source, meta, names)}")
    return source, source.build()


def test_reading_is_straight_line_code() -> None:
    a = torch.ones(2)
    source, read = reader(TwoTensor(TwoTensor(a, a), TwoTensor(a, a)))
    assert str(source).splitlines()[1:] == [
        "    if x.__class__ is not TwoTensor: wrong_class(x, TwoTensor, 'x')",
        "    x_a = x.a",
        "    if x_a.__class__ is not TwoTensor: wrong_class(x_a, TwoTensor, 'x.a')",
        "    x_b = x.b",
        "    if x_b.__class__ is not TwoTensor: wrong_class(x_b, TwoTensor, 'x.b')",
        "    return [x_a.a, x_a.b, x_b.a, x_b.b]",
    ]


def test_a_class_that_hides_its_name_is_still_told_apart() -> None:
    class Hidden(TwoTensor):
        @property
        def __class__(self) -> type:  # type: ignore[override]
            return torch.Tensor

    a = torch.ones(2)
    source, read = reader(Hidden(a, a))
    assert "if type(x) is not Hidden" in str(source)
    assert read(Hidden(a, a)) == [a, a]


def test_reading_unchecked() -> None:
    a = torch.ones(2)
    source, read = reader(TwoTensor(a, a), check=False)
    assert str(source) == "def read(x):\n    return [x.a, x.b]"


def test_the_fast_constructor_is_straight_line_code() -> None:
    source, write = writer(Blocks(torch.zeros(2, 3), block_size=32))
    assert str(source).splitlines()[1:] == [
        "    blocks = make_wrapper_subclass(Blocks, (2, 3), None, None, None, float32, strided, cpu)",
        "    blocks.codes = l0",
        "    blocks.block_size = 32",
        "    blocks.scale = None",
        "    return blocks",
    ]


@pytest.mark.parametrize("scale", [None, torch.ones(2, 1)])
@pytest.mark.parametrize("codes", [torch.zeros(2, 3), torch.zeros(3, 2).t(), torch.zeros(0, 3), torch.tensor(1.0)])
def test_the_fast_constructor_does_what_the_slow_one_does(codes: torch.Tensor, scale: torch.Tensor | None) -> None:
    value = Blocks(codes, scale, block_size=16)
    source, write = writer(value)
    leaves = reader(value)[1](value)
    before = Blocks.built
    fast = write(*leaves)
    assert Blocks.built == before
    slow = Blocks.__tensor_unflatten__(
        dict(zip(["codes", "scale"], leaves, strict=False)), 16, value.shape, value.stride()
    )
    assert type(fast) is type(slow) is Blocks
    assert (fast.codes, fast.scale, fast.block_size) == (slow.codes, slow.scale, slow.block_size)
    for name in "shape", "dtype", "device", "layout", "requires_grad":
        assert getattr(fast, name) == getattr(slow, name)
    assert (fast.stride(), fast.storage_offset()) == (slow.stride(), slow.storage_offset())
    assert vars(fast) == vars(slow)


def test_a_storage_offset_is_kept() -> None:
    class Offset(TwoTensor):
        @classmethod
        def __wrapper_attributes__(cls, names: Any, context: Any) -> dict[str, object]:
            return {}

    inner = torch.zeros(4, 6)[1:, 2:]
    write = writer(Offset(inner, inner))[1]
    assert (write(inner, inner).storage_offset(), write(inner, inner).stride()) == (8, (6, 1))


@pytest.mark.parametrize("cls", [Odd, FastOdd])
def test_odd_names_lists_and_dicts(cls: type[Odd]) -> None:
    a, b, c, d, e = (torch.full((2,), float(i)) for i in range(5))
    value = cls({"class": a, "a.b": b, "parts": {"k": [c, TwoTensor(d, e)], 2: (c,)}, "none": None})
    read, write = reader(value)[1], writer(value)[1]
    leaves = read(value)
    assert [leaf is t for leaf, t in zip(leaves, (a, b, c, d, e, c), strict=True)] == [True] * 6
    again = write(*leaves)
    assert again.none is None and again.parts["k"][0] is c and again.parts[2] == (c,)
    assert type(again.parts["k"]) is list and type(again.parts["k"][1]) is TwoTensor
    assert [x is y for x, y in zip(read(again) if cls is type(again) else leaves, leaves, strict=True)] == [True] * 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.__dict__.update(none=torch.ones(1)), r"^x\.none: planned as NoneType, got Tensor\."),
        (lambda v: v.parts.pop(), r"^x\.parts: planned as a list of length 2, got 1\."),
        (lambda v: v.__dict__.update(parts=(1, 2)), r"^x\.parts: planned as list, got tuple\."),
        (
            lambda v: v.parts.__setitem__(1, {"j": 1}),
            r"^x\.parts\[1\]: planned as a dict of keys \['k'\], got \['j'\]\.",
        ),
    ],
)
def test_changes_inside_are_refused_by_their_place(change: Any, message: str) -> None:
    a = torch.ones(2)
    value = Odd({"class": a, "a.b": a, "parts": [a, {"k": a}], "none": None})
    read = reader(value)[1]
    change(value)
    with pytest.raises(PlanError, match=message):
        read(value)


def test_one_inner_tensor_twice_stays_one() -> None:
    a = torch.ones(2)
    again = writer(TwoTensor(a, a))[1](a, a)
    assert again.a is again.b is a


def test_the_number_of_names_must_fit() -> None:
    (meta,) = create_subclass_meta([TwoTensor(torch.ones(2), torch.ones(2))])
    with pytest.raises(ValueError, match="the meta takes 2 leaves, got 1 names"):
        emit_wrap(Source("f", "a"), meta, ["a"])
