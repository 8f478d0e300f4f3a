"""How inner tensors follow a wrapper: along each dim, and along its rows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor
from subclass_aot.kit.wrapper.layout import field_map
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, FieldMap, field_maps, is_kept, rows_of, share_of
from tests.kit.wrapper.classes import scaled


@pytest.mark.parametrize(
    ("scale", "rows"), [((3, 1), 1), ((3, 4), 1), ((1, 4), 0), ((1, 1), 0), ((4,), 0), ((1,), 0), ((), 0)]
)
def test_a_field_has_the_rows_or_all_share_it(scale: tuple[int, ...], rows: int) -> None:
    x = scaled(scale=scale)
    assert [rows_of(x, name) for name in ("codes", "scale", "shift", "table")] == [1, rows, 0, 0]


def test_what_is_kept_is_shared_whatever_its_size() -> None:
    x = scaled()
    x.table = torch.rand(3, 7)  # as many rows as the tensor has, by chance
    assert rows_of(x, "table") == 0 and is_kept(x, "table") and not is_kept(x, "codes")


def test_a_field_of_fewer_dims_has_those_of_the_end() -> None:
    x = Int8Weight(torch.ones(4, 3, dtype=torch.int8), torch.ones(3))
    assert (share_of(x, "scale", 0), share_of(x, "scale", 1)) == (0, 1)


def test_of_a_single_row_a_field_is_its_own() -> None:
    assert rows_of(scaled(1, 4, scale=(1, 4)), "scale") == 1


@pytest.mark.parametrize("cls", [TwoTensor, ForeignTwoTensor])
def test_operators_on_each_inner_tensor_cut_each(cls: Any) -> None:
    assert rows_of(cls(torch.ones(3, 2), torch.ones(3, 2)), "b") == 1


class Offsets(WrapperTensor, fallback="each"):
    content: torch.Tensor
    offsets: torch.Tensor


class Broad(WrapperTensor, views="broadcast"):
    codes: torch.Tensor
    scale: torch.Tensor


class Silent(WrapperTensor):
    value: torch.Tensor


@pytest.mark.parametrize(
    ("x", "name", "why"),
    [
        (Offsets(torch.ones(3), torch.ones(4)), "offsets", r"offsets\[4\] does not have the rows of a tensor of \[3\]"),
        (Offsets(torch.ones(3), torch.ones(())), "offsets", r"offsets\[\] does not have the rows"),
        (Silent(torch.ones(3)), "value", r'Silent declares no views="broadcast"'),
        (
            Broad(torch.ones(4, 3, dtype=torch.int8), torch.ones(2, 3)),
            "scale",
            r"scale\[2, 3\] has neither the rows of a tensor of \[4, 3\] nor one for all of them",
        ),
        (Broad(torch.ones(4, 3, dtype=torch.int8), torch.ones(4, 1, 1)), "scale", "has neither the rows"),
    ],
)
def test_another_size_is_refused(x: Any, name: str, why: str) -> None:
    with pytest.raises(CannotFollow, match=why):
        rows_of(x, name)


Dims = tuple[int, ...]


@pytest.mark.parametrize(
    ("how", "size", "outer", "elements"),
    [
        ("broadcast", (4, 6), (4, 6), [1, 1]),
        ("broadcast", (4, 1), (4, 6), [1, 0]),
        ("broadcast", (6,), (4, 6), [0, 1]),
        ("broadcast", (), (4, 6), [0, 0]),
        ("broadcast", (1, 1), (1, 6), [1, 0]),
        ("broadcast", (0, 1), (0, 6), [1, 0]),
        ("keep", (5,), (4, 6), [0, 0]),
        ("blocks", (4, 3), (4, 6), [1, 2]),
        ("blocks", (2, 1), (4, 6), [2, 6]),
        ("blocks", (), (4, 6), [0, 0]),
    ],
)
def test_elements_along_each_dim(how: str, size: Dims, outer: Dims, elements: list[int]) -> None:
    found = FieldMap("field", how, size, outer)
    assert found.same_for_all or found.lines_up()
    assert [found[dim] for dim in range(len(outer))] == elements
    assert [found[dim - len(outer)] for dim in range(len(outer))] == elements
    assert [found.share(dim) for dim in range(len(outer))] == [Fraction(1, n) if n else 0 for n in elements]


@pytest.mark.parametrize("dim", [-3, 2])
def test_a_dim_that_is_not_there(dim: int) -> None:
    with pytest.raises(IndexError, match=rf"dim {dim} of a tensor of \[4, 6\], which has the dims -2 to 1"):
        FieldMap("field", "broadcast", (4, 1), (4, 6))[dim]


@pytest.mark.parametrize(
    ("how", "size", "dim"), [("broadcast", (4, 2), 1), ("broadcast", (4, 6, 1), 0), ("blocks", (4, 4), 1)]
)
def test_sizes_that_do_not_line_up(how: str, size: Dims, dim: int) -> None:
    found = FieldMap("field", how, size, (4, 6))
    assert not found.lines_up() and found.why_not
    with pytest.raises(CannotFollow, match="has neither the"):
        found[dim]
    assert found.size_in((8, 6)) is None


@pytest.mark.parametrize(
    ("how", "size", "wanted", "expected"),
    [
        ("broadcast", (4, 1), (8, 3), [8, 1]),
        ("broadcast", (6,), (8, 3), [3]),
        ("broadcast", (4, 6), (8,), None),
        ("blocks", (4, 3), (2, 8), [2, 4]),
        ("blocks", (4, 3), (2, 7), None),
        ("blocks", (0, 3), (0, 6), None),
    ],
)
def test_sizes_in_another_tensor(how: str, size: Dims, wanted: Dims, expected: list[int] | None) -> None:
    assert FieldMap("field", how, size, (0 if size[0] == 0 else 4, 6)).size_in(wanted) == expected


def test_maps_are_kept_for_the_sizes() -> None:
    x = Int8Weight(torch.ones(4, 3, dtype=torch.int8), torch.ones(1, 3))
    names, sizes = ["codes", "scale"], [x.codes.shape, x.scale.shape]
    assert field_maps(x, names, sizes) is field_maps(x.clone(), names, sizes)
    assert field_maps(x[:2], names, [(2, 3), (1, 3)]) is not field_maps(x, names, sizes)


def test_no_more_than_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_map, "MOST_KEPT", 0)
    x = Offsets(torch.ones(3), torch.ones(4))
    assert field_maps(x, ["content"], [(3,)]) == field_maps(x, ["content"], [(3,)]) and not Offsets._field_maps
