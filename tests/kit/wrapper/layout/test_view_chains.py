"""Chains of views of classes that are drawn, against those of the dense tensors that they stand for.

A class is drawn by what an element of each field stands for along each dim: one element of the wrapper, several, or
all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot import Outer, WrapperTensor
from subclass_aot.kit.wrapper import ViewOf
from subclass_aot.kit.wrapper.serve.kernels import without_kernels

BLOCK = 2
Share = str
"""For each dim of the wrapper: "w" (as long), "b" (an element stands for `BLOCK`), "a" (an element stands for all)."""


class Drawn(NamedTuple):
    """A class of three fields, and how long the wrapper is."""

    size: tuple[int, ...]
    codes: Share
    scale: Share | None  # None: a number
    lacks_dims: bool  # `scale` lacks those dims before its own along which an element stands for all
    has_table: bool


def _how(share: Share) -> str:
    return "blocks" if "b" in share else "broadcast"


def _make_class(drawn: Drawn) -> type[Any]:
    views = {"codes": _how(drawn.codes), "scale": _how(drawn.scale or ""), "table": "keep"}
    has_blocks = "blocks" in views.values()

    class Drawing(WrapperTensor, views=views):  # type: ignore[call-arg]
        codes: torch.Tensor
        scale: torch.Tensor
        table: torch.Tensor | None = None

        def outer_metadata(self) -> Outer:
            if not has_blocks:
                return Outer.like(self.codes, dtype=self.scale.dtype)
            each = [BLOCK if share == "b" else 1 for share in drawn.codes]
            size = [n * k for n, k in zip(self.codes.shape, each, strict=True)]
            return Outer(size, None, self.scale.dtype, self.scale.device)

        def to_plain(self) -> torch.Tensor:
            found = _spread(self.codes, self.shape) * _spread(self.scale, self.shape)
            return found if self.table is None else found + self.table.sum()

    return Drawing


def _spread(field: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """A field with an element for each of the wrapper's."""
    field = field.reshape([1] * (len(size) - field.dim()) + list(field.shape))
    for dim, length in enumerate(size):
        if field.shape[dim] not in (1, length):
            field = field.repeat_interleave(length // field.shape[dim], dim)
    return field.expand(list(size))


def _field(drawn: Drawn, share: Share) -> torch.Tensor:
    lengths = {"w": 1, "b": BLOCK}
    size = [n // lengths[s] if s in lengths else 1 for n, s in zip(drawn.size, share, strict=True)]
    return torch.arange(1.0, 1 + math.prod(size)).reshape(size)


def make(drawn: Drawn) -> Any:
    codes = _field(drawn, drawn.codes)
    scale = torch.tensor(0.5) if drawn.scale is None else _field(drawn, drawn.scale) + 0.25
    while drawn.lacks_dims and scale.dim() and drawn.scale and drawn.scale[-scale.dim()] == "a":
        scale = scale.squeeze(0)
    table = (torch.ones(5),) if drawn.has_table else ()
    return _make_class(drawn)(codes, scale, *table)


@st.composite
def drawings(draw: st.DrawFn) -> Drawn:
    size = tuple(draw(st.lists(st.sampled_from([2, 4, 6]), min_size=1, max_size=3)))
    parts = draw(st.booleans())
    letters = "wb" if parts else "w"
    codes = "".join(draw(st.sampled_from(letters)) for _ in size)
    scale = draw(
        st.none() | st.tuples(*[st.sampled_from("wb" if parts and draw(st.booleans()) else "wa") for _ in size])
    )
    share = None if scale is None else "".join(scale)
    if share and "b" in share:
        share = share.replace("a", "w")
    return Drawn(size, codes, share, draw(st.booleans()) and not (share and "b" in share), draw(st.booleans()))


View = tuple[str, tuple[Any, ...]]


@st.composite
def views(draw: st.DrawFn, size: Sequence[int]) -> View:
    """A view of a tensor of this size: most are possible, some are not."""
    rank = len(size)
    anywhere = st.integers(-rank - 1, rank) if draw(st.integers(0, 9)) == 0 else st.integers(-rank, max(rank - 1, 0))
    dim = draw(anywhere)
    length = size[dim] if -rank <= dim < rank else 2
    index = st.integers(-length - 1, length + 1)
    kind = draw(st.sampled_from(sorted(_KINDS)))
    return kind, _KINDS[kind](draw, size, dim, length, index)


def _regrouped(draw: st.DrawFn, size: Sequence[int]) -> list[int]:
    total = math.prod(size)
    new = [n for n in draw(st.permutations([2, 3, 1, 4, 6])) if draw(st.booleans())]
    while new and (total % math.prod(new)):
        new.pop()
    new.append(total // math.prod(new) if math.prod(new) else 0)
    if draw(st.booleans()):
        new[draw(st.integers(0, len(new) - 1))] = -1
    return new


_KINDS: dict[str, Callable[..., tuple[Any, ...]]] = {
    "t": lambda draw, size, dim, length, index: (),
    "transpose": lambda draw, size, dim, length, index: (dim, draw(st.integers(-len(size), max(len(size) - 1, 0)))),
    "permute": lambda draw, size, dim, length, index: (draw(st.permutations(range(len(size)))),),
    "unsqueeze": lambda draw, size, dim, length, index: (dim,),
    "squeeze": lambda draw, size, dim, length, index: draw(st.sampled_from([(), (dim,)])),
    "select": lambda draw, size, dim, length, index: (dim, draw(index)),
    "slice": lambda draw, size, dim, length, index: (
        dim,
        draw(st.none() | index),
        draw(st.none() | index),
        draw(st.sampled_from([1, 1, 1, 2])),
    ),
    "narrow": lambda draw, size, dim, length, index: (dim, draw(index), draw(st.integers(0, length))),
    "expand": lambda draw, size, dim, length, index: (
        [
            *draw(st.sampled_from([[], [2]])),
            *[draw(st.sampled_from([n, n, -1, 3])) if n == 1 or draw(st.integers(0, 9)) == 0 else n for n in size],
        ],
    ),
    "split": lambda draw, size, dim, length, index: (draw(st.integers(1, length + 1)), dim),
    "split_with_sizes": lambda draw, size, dim, length, index: (
        draw(st.sampled_from([[length // 2, length - length // 2], [length], [0, length], [1, length]])),
        dim,
    ),
    "unbind": lambda draw, size, dim, length, index: (dim,),
    "view": lambda draw, size, dim, length, index: (_regrouped(draw, size),),
    "as_strided": lambda draw, size, dim, length, index: (
        [2, 2],
        [draw(st.integers(1, 4)), draw(st.integers(1, 2))],
        draw(st.none() | st.integers(0, 3)),
    ),
    "detach": lambda draw, size, dim, length, index: (),
}


def run(x: torch.Tensor, view: View) -> list[torch.Tensor]:
    name, args = view
    if name == "slice":
        made: Any = torch.ops.aten.slice.Tensor(x, *args)
    else:
        made = getattr(x, name)(*args)
    return list(made) if isinstance(made, tuple | list) else [made]


def assert_is_view(mine: Any, theirs: torch.Tensor, x: Any) -> None:
    assert type(mine) in (type(x), ViewOf)
    assert (mine.shape, mine.stride(), mine.storage_offset()) == (
        theirs.shape,
        theirs.stride(),
        theirs.storage_offset(),
    )
    torch.testing.assert_close(mine.to_plain(), theirs)
    assert mine.untyped_storage()._cdata == x.untyped_storage()._cdata
    whole = mine.base if type(mine) is ViewOf else mine
    for name in x.__tensor_flatten__()[0]:
        assert getattr(whole, name).untyped_storage()._cdata == getattr(x, name).untyped_storage()._cdata
    torch.autograd.graph.increment_version(x)
    assert mine._version == x._version


def _spans(size: Sequence[int], args: tuple[Any, ...]) -> bool:
    """Whether `as_strided` stays within a tensor, whose memory eager mode may be larger than."""
    new, stride, offset = args
    return (offset or 0) + sum((n - 1) * s for n, s in zip(new, stride, strict=True)) < math.prod(size)


@pytest.mark.parametrize("kernels", [nullcontext, without_kernels])
@settings(deadline=None)
@given(data=st.data())
def test_a_chain_of_views_is_that_of_the_dense_tensor(kernels: Any, data: st.DataObject) -> None:
    x = make(data.draw(drawings()))
    mine, theirs, root = x, x.to_plain().contiguous(), x
    with torch.no_grad(), kernels():
        for _ in range(data.draw(st.integers(1, 4))):
            view = data.draw(views(tuple(theirs.shape)))
            if view[0] == "as_strided" and (mine is not x or not _spans(x.shape, view[1])):
                continue  # where the memory of a view ends, dense tensors have more
            try:
                expected = run(theirs, view)
            except (RuntimeError, IndexError):
                expected = None
            if expected is None:
                with pytest.raises((RuntimeError, IndexError)):
                    run(mine, view)
                continue
            got = run(mine, view)
            assert len(got) == len(expected)
            for one, other in zip(got, expected, strict=True):
                assert_is_view(one, other, x)
                assert one._base is (None if other._base is None else root)
            which = data.draw(st.integers(0, len(got) - 1)) if got else None
            if which is None:
                continue
            mine, theirs = got[which], expected[which]
            root = mine if theirs._base is None else root
