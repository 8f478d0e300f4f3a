"""Specs: interned, immutable, and equal to what a tensor says of itself."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from subclass_aot import Spec
from subclass_aot.errors import TraceError
from subclass_aot.meta import spec as spec_module
from subclass_aot.meta.strided_sets import TooHard
from subclass_aot.meta.symbols import SizesMustBeKnown, Symbols


def test_equal_specs_are_one_object() -> None:
    spec = Spec.of(torch.zeros(2, 3))
    assert spec is Spec.of(torch.ones(2, 3)) is Spec.make((2, 3), (3, 1))
    twins = [copy.copy(spec), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))]
    assert all(twin is spec for twin in twins)


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(3, 2),
        torch.zeros(3, 2).T,
        torch.zeros(7)[1:].view(2, 3),
        torch.zeros(2, 3, dtype=torch.float64),
        torch.zeros(2, 3, device="meta"),
    ],
    ids=["size", "stride", "offset", "dtype", "device"],
)
def test_every_fact_tells_specs_apart(other: torch.Tensor) -> None:
    assert Spec.of(other) is not Spec.of(torch.zeros(2, 3))
    assert Spec.of(other) != Spec.of(torch.zeros(2, 3))


def test_specs_are_immutable() -> None:
    spec = Spec.make((2,), (1,))
    for name in ("size", "offset", "color"):
        with pytest.raises(AttributeError, match=r"Spec is immutable: make another one with Spec.make\(...\)"):
            setattr(spec, name, (3,))
    with pytest.raises(TypeError, match=r"write Spec.of\(tensor\) or Spec.make"):
        Spec()
    assert spec.size == (2,)


def test_what_has_no_spec_is_refused() -> None:
    with pytest.raises(TraceError, match="A tensor of layout torch.sparse_coo has no strides"):
        Spec.of(torch.eye(3).to_sparse())
    z = torch.zeros(2, dtype=torch.complex64)
    for lazy in (z.conj(), z.conj().imag):
        with pytest.raises(TraceError, match=r"Pass tensor.resolve_conj\(\).resolve_neg\(\) instead"):
            Spec.of(lazy)
        assert Spec.of(lazy.resolve_conj().resolve_neg())


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of some size, dtype, stride and offset."""
    size = draw(st.lists(st.integers(0, 4), max_size=3))
    dtype = draw(st.sampled_from([torch.float32, torch.int8, torch.complex128, torch.bool]))
    x = torch.zeros([n + 2 for n in size], dtype=dtype)
    for dim, n in enumerate(size):
        x = x.narrow(dim, draw(st.integers(0, 2)), n)
        if draw(st.booleans()):
            x = x[(slice(None),) * dim + (slice(None, None, 2),)]
    x = x.permute(draw(st.permutations(range(x.dim()))))
    return x.unsqueeze(0).expand(3, *x.shape) if draw(st.booleans()) else x


@given(tensors())
def test_spec_says_what_the_tensor_says(x: torch.Tensor) -> None:
    spec = Spec.of(x)
    assert spec.size == tuple(x.shape) and spec.stride == x.stride() and spec.offset == x.storage_offset()
    assert (spec.dtype, spec.device, spec.layout) == (x.dtype, x.device, x.layout)
    assert spec.numel == x.numel() and spec.nbytes == x.numel() * x.element_size()
    assert spec.extent <= x.untyped_storage().nbytes() // x.element_size()
    if spec.numel:  # the extent is just enough
        assert torch.empty(spec.extent).as_strided(spec.size, spec.stride, spec.offset).shape == x.shape
        with pytest.raises(RuntimeError, match="out of bounds"):
            torch.empty(spec.extent - 1).as_strided(spec.size, spec.stride, spec.offset)


@given(tensors())
def test_overlap_is_what_several_elements_in_one_place_are(x: torch.Tensor) -> None:
    places = torch.arange(10_000).as_strided(x.shape, x.stride(), x.storage_offset())
    assert Spec.of(x).overlaps_itself == (places.unique().numel() < places.numel())


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    """Views of one storage: parts of it by any sizes and strides."""
    dims = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=3))
    dtype = draw(st.sampled_from([torch.int16, torch.int32, torch.int64]))
    memory = torch.zeros(800, dtype=torch.int8).view(dtype)
    return memory.as_strided([n for n, _ in dims], [step for _, step in dims], draw(st.integers(0, 20)))


def _places(x: torch.Tensor) -> list[int]:
    """The bytes of each element."""
    first = torch.arange(800).as_strided(x.shape, x.stride(), x.storage_offset()).reshape(-1) * x.element_size()
    return [place + i for place in first.tolist() for i in range(x.element_size())]


@given(views(), views())
def test_places_in_memory(x: torch.Tensor, y: torch.Tensor) -> None:
    places, others = _places(x), set(_places(y))
    assert Spec.of(x).overlaps_itself == (len(set(places)) < len(places))
    assert Spec.of(x).lies_apart(Spec.of(y)) == others.isdisjoint(places)
    assert Spec.of(y).has_places_of(Spec.of(x)) <= (others >= set(places))


@given(tensors(), st.data())
def test_a_tensor_has_the_places_of_its_views(x: torch.Tensor, data: st.DataObject) -> None:
    view = x
    for dim in range(x.dim()):
        start = data.draw(st.integers(0, x.shape[dim]))
        view = view[(slice(None),) * dim + (slice(start, None, data.draw(st.integers(1, 2))),)]
    assert Spec.of(x).has_places_of(Spec.of(view))


def test_symbolic_sizes_of_what_lies_in_memory() -> None:
    rows, columns = (symbols := Symbols()).size(6, "rows"), symbols.size(5, "columns")
    packed, gaps = Spec.make((rows, columns), (columns, 1)), Spec.make((rows, 3), (4, 1))
    assert packed.is_packed and not gaps.is_packed and not packed.overlaps_itself and not gaps.overlaps_itself
    assert Spec.make((rows, 3), (0, 1)).overlaps_itself and Spec.make((rows, 3), (0, 1)).is_expanded
    assert packed.has_places_of(Spec.make((rows,), (1,), 2)) and not packed.has_places_of(Spec.make((rows,), (6,), 2))
    turned = Spec.make((rows, 4, columns), (columns, rows * columns, 1))
    assert turned.has_places_of(Spec.make((rows, 2), (1, 1))) and turned.has_places_of(turned)
    assert not turned.has_places_of(Spec.make((rows,), (4 * columns,), 1 + 4 * columns))
    for question in (lambda: Spec.make((rows, 3), (2, 1)).overlaps_itself, lambda: gaps.has_places_of(packed)):
        with pytest.raises(SizesMustBeKnown):
            question()


def test_what_is_not_found_out_may_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def takes_too_long(*given: object) -> bool:
        raise TooHard

    monkeypatch.setattr(spec_module, "has_common_place", takes_too_long)
    monkeypatch.setattr(spec_module, "has_place_twice", takes_too_long)
    row, windows = Spec.make((3,), (1,)), Spec.make((3, 2), (2, 1), 3)
    assert not row.lies_apart(windows) and Spec.make((3, 2), (3, 1)).overlaps_itself


@pytest.mark.parametrize(
    "tensor, text",
    [
        (torch.zeros(2, 3), "Spec([2, 3], float32, cpu)"),
        (torch.zeros(3, 2).T, "Spec([2, 3], float32, cpu, stride=(1, 2))"),
        (torch.zeros(4, dtype=torch.int8, device="meta")[1:], "Spec([3], int8, meta, offset=1)"),
    ],
)
def test_repr(tensor: Any, text: str) -> None:
    assert repr(Spec.of(tensor)) == text
