"""Views of classes whose fields stand for blocks, against those of the dense tensors that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from subclass_aot import Outer, WrapperTensor, aot_compile
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper import ViewOf
from tests.kit.wrapper.test_view_of import VIEWS, WRITES

GROUP = 4


class Packed(WrapperTensor, views="blocks"):
    """Two codes of four bits in a byte, and a scale for each four."""

    packed: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        *rows, half = self.packed.shape
        return Outer((*rows, 2 * half), None, self.scale.dtype, self.scale.device)

    def to_plain(self) -> torch.Tensor:
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(-2).to(self.scale.dtype) - 8
        return (codes.unflatten(-1, (-1, GROUP)) * self.scale[..., None]).flatten(-2)

    def from_plain(self, plain: torch.Tensor) -> Packed:
        groups = plain.unflatten(-1, (-1, GROUP))
        scale = groups.abs().amax(-1).clamp(min=1e-6) / 7
        codes = (groups / scale[..., None]).round().flatten(-2).to(torch.int8) + 8
        return Packed((codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), scale)


class ByRow(Packed, views={"packed": "blocks"}):
    """The same with one scale for a row, which every part of the row has."""

    def to_plain(self) -> torch.Tensor:
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(-2).to(self.scale.dtype) - 8
        return codes * self.scale

    def from_plain(self, plain: torch.Tensor) -> ByRow:
        scale = plain.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 7
        codes = (plain / scale).round().to(torch.int8) + 8
        return ByRow((codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), scale)


def packed(rows: int = 4, columns: int = 8, cls: type[Packed] = Packed) -> Packed:
    torch.manual_seed(0)
    return cls.from_plain(None, torch.randn(rows, columns))  # type: ignore[arg-type]


CUT = {"rows", "split of sizes"}
"""Those that part no block."""


@pytest.mark.parametrize("compiler", ["", "eager"])
@pytest.mark.parametrize("cls", [Packed, ByRow])
@pytest.mark.parametrize("name", VIEWS)
def test_it_is_the_view_of_the_dense_tensor(name: str, cls: type[Packed], compiler: str) -> None:
    x, view = packed(cls=cls), VIEWS[name]
    got = (aot_compile(view, fw_compiler=compiler) if compiler else view)(x)
    expected = view(x.to_plain())
    for mine, theirs in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
        assert type(mine) is (cls if name in CUT else ViewOf)
        assert (mine.shape, mine.stride(), mine.storage_offset()) == (
            theirs.shape,
            theirs.stride(),
            theirs.storage_offset(),
        )
        torch.testing.assert_close(mine.to_plain(), theirs)
        assert mine._base is x


@pytest.mark.parametrize(
    ("cut", "scales"),
    [
        (lambda x: x[:, 4:8], (4, 1)),
        (lambda x: x[1:, -8:], (3, 2)),
        (lambda x: x.narrow(1, 4, 12), (4, 3)),
        (lambda x: x[2:2], (0, 4)),
        (lambda x: x[:, 4:][1:][:, 4:8], (3, 1)),
        (lambda x: x.chunk(2, 1)[1], (4, 2)),
        (lambda x: x.split([4, 12], -1)[1], (4, 3)),
        (lambda x: x[:, 100:], (4, 0)),
    ],
)
def test_parts_of_whole_blocks_are_of_the_class(cut: Any, scales: tuple[int, int]) -> None:
    x = packed(columns=16)
    part, expected = cut(x), cut(x.to_plain())
    assert type(part) is Packed and part.scale.shape == scales
    assert (part.shape, part.stride()) == (expected.shape, expected.stride())
    assert part.packed.untyped_storage().data_ptr() == x.packed.untyped_storage().data_ptr()
    torch.testing.assert_close(part.to_plain(), expected)


@pytest.mark.parametrize("mode", ["no_grad", "inference", "compiled"])
@pytest.mark.parametrize("cls", [Packed, ByRow])
@pytest.mark.parametrize(
    "write",
    [
        *WRITES.values(),
        lambda x: x[:, 4:8].zero_(),
        lambda x: x[1].mul_(3),
        lambda x: x.narrow(1, 0, 4).copy_(torch.linspace(-1, 1, 4).expand(4, 4)),
        lambda x: x[:, 4:][2:].copy_(packed(2, 4).to_plain()),
    ],
)
def test_writes_change_what_they_name(write: Any, cls: type[Packed], mode: str) -> None:
    x = packed(cls=cls)
    before = x.to_plain()
    expected = before.clone()
    write(expected)
    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        if mode == "compiled":
            aot_compile(lambda x: (write(x), x * 1)[1])(x)
        else:
            write(x)
    group = expected.shape[1] if cls is ByRow else GROUP
    step = expected.unflatten(1, (-1, group)).abs().amax(-1, keepdim=True) / 7
    assert ((x.to_plain() - expected).unflatten(1, (-1, group)).abs() <= step * 0.51 + 1e-6).all()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch.compile looks at it
@pytest.mark.parametrize("compile", [lambda f: f, aot_compile, lambda f: torch.compile(f, backend="aot_eager")])
def test_linear_on_rows_and_columns(compile: Any) -> None:
    """Of tensor-parallel layers: a part of the rows, and a part of the columns."""
    torch.compiler.reset()
    for part in (lambda w: w[4:], lambda w: w[:, 8:]):
        weight = nn.Parameter(packed(8, 16))
        found = []
        dense = weight.to_plain().detach().requires_grad_()
        for function, w in ((F.linear, dense), (compile(F.linear), weight)):
            x = torch.ones(3, part(dense).shape[1], requires_grad=True)
            function(x, part(w)).sin().sum().backward()
            found.append((x.grad, w.grad))
        for expected, got in zip(*found, strict=True):
            torch.testing.assert_close(got, expected)


def test_a_part_takes_in_another_of_the_class() -> None:
    """As it is, without rounding: this is how weights are loaded part by part."""
    x, other = packed(), packed(8, 16)
    with torch.no_grad():
        x[:, 4:].copy_(other[2:6, 8:12])
        x.narrow(1, 0, 4).copy_(other[4:, 12:])
    torch.testing.assert_close(x.to_plain(), torch.cat([other[4:, 12:].to_plain(), other[2:6, 8:12].to_plain()], 1))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_one_cut_after_another(data: st.DataObject) -> None:
    x: Any = packed(6, 24)
    dense = x.to_plain()
    for _ in range(data.draw(st.integers(1, 4))):
        dim = data.draw(st.integers(0, dense.dim() - 1)) if dense.dim() else None
        if dim is None:
            break
        length = dense.shape[dim]
        kind = data.draw(st.sampled_from(["slice", "slice", "select", "t"]))
        if kind == "slice":
            start = data.draw(st.integers(-length, length))
            end = data.draw(st.integers(-length, length + 2))
            x, dense = (torch.ops.aten.slice.Tensor(y, dim, start, end) for y in (x, dense))
        elif kind == "select" and length:
            index = data.draw(st.integers(-length, length - 1))
            x, dense = (y.select(dim, index) for y in (x, dense))
        elif dense.dim() == 2:
            x, dense = x.t(), dense.t()
        assert (x.shape, x.stride()) == (dense.shape, dense.stride())
        torch.testing.assert_close(x.to_plain(), dense)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_differ(dynamic: bool | None) -> None:
    compiled = aot_compile(lambda x: (x[1:, 4:] * 2, x[-1] * 2), dynamic=dynamic)
    for rows in (4, 5, 6, 7):
        x = packed(rows, 12)
        for got, expected in zip(compiled(x), (x.to_plain()[1:, 4:] * 2, x.to_plain()[-1] * 2), strict=True):
            torch.testing.assert_close(got, expected)
    assert len(compiled.recompiles) <= (dynamic is None)


def test_new_tensors_have_blocks_of_the_same_sizes() -> None:
    x = packed()
    new = x.new_zeros(3, 16)
    assert type(new) is Packed and (new.shape, new.packed.shape, new.scale.shape) == ((3, 16), (3, 8), (3, 4))
    assert torch.empty_like(x, device="meta").shape == x.shape
    with pytest.raises(OperatorRuleError, match=r"it cannot tell what it is in \[3, 6\]"):
        x.new_zeros(3, 6)


def test_a_class_that_says_it_wrongly() -> None:
    """Its size is not made of the fields', so a part would have the size of the whole: such views read through it."""

    class Fixed(Packed, views="blocks"):
        whole: tuple[int, int] = (4, 8)

        def outer_metadata(self) -> Outer:
            return Outer(self.whole, None, self.scale.dtype, self.scale.device)

    x = packed()
    fixed = Fixed(x.packed, x.scale)
    assert type(fixed[:2]) is ViewOf and fixed[:2].shape == (2, 8)

    class Strict(Packed, views="blocks", fallback="error"):
        pass

    strict = Strict(x.packed, x.scale)
    assert type(strict[1:]) is Strict
    for view, why in (
        (lambda x: x[:, :2], "0 to 2 parts a block: an element of scale stands for 4 along dim 1"),
        (lambda x: x[::2], "steps of 2 part blocks"),
        (lambda x: x.t(), "does more than to cut between the blocks"),
    ):
        with pytest.raises(OperatorRuleError, match=why):
            view(strict)
