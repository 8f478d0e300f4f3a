"""Whatever makes a tensor on a device puts all its inner tensors there; a model that was on meta can be loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot import tensors
from subclass_aot.errors import OperatorRuleError
from subclass_aot.testing.compare import dense_leaves


class Permuted(sa.WrapperTensor):
    """Rows in another order."""

    rows: torch.Tensor
    order: torch.Tensor = sa.structure()

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.rows)

    def to_plain(self) -> torch.Tensor:
        return plain(self.rows)[self.order]


class Masked(sa.WrapperTensor, fallback="each"):
    content: torch.Tensor
    masks: list[torch.Tensor] = sa.structure()
    other: torch.Tensor | None = sa.structure()


class Levels(sa.WrapperTensor, views={"codes": "broadcast", "levels": "keep"}):
    """Codes, and a table that all views have in common."""

    codes: torch.Tensor
    levels: torch.Tensor

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.codes, dtype=self.levels.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.levels[self.codes.int()]


class Pruned(sa.WrapperTensor):
    """Values where another tensor, which is a wrapper, is not zero."""

    whole: torch.Tensor
    pattern: torch.Tensor = sa.structure()

    def to_plain(self) -> torch.Tensor:
        return self.whole * plain(self.pattern).ne(0)


def plain(tensor: Any) -> torch.Tensor:
    return tensor.to_plain() if hasattr(tensor, "to_plain") else tensor  # type: ignore[no-any-return]


W = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
int8 = tensors.Int8Weight.from_float
sparse = tensors.Sparse24Weight.from_float

MADE: dict[str, Callable[[], Any]] = {
    "Float8Weight": lambda: tensors.Float8Weight.from_float(W),
    "Int4Tiles": lambda: tensors.Int4Tiles.from_float(W, 32),
    "Int4Weight": lambda: tensors.Int4Weight.from_float(W, 32),
    "Int8DynamicWeight": lambda: tensors.Int8DynamicWeight.from_float(W),
    "Int8Weight": lambda: int8(W),
    "Int8Weight with a zero point": lambda: tensors.Int8Weight(int8(W).codes, int8(W).scale, torch.ones(64, 1)),
    "Jagged": lambda: tensors.Jagged.of(W[:3], W[:5]),
    "LoraWeight": lambda: tensors.LoraWeight.beside(int8(W), 2),
    "LoraWeight of Sparse24Weight": lambda: tensors.LoraWeight.beside(sparse(W), 2),
    "MaskedTensor": lambda: tensors.MaskedTensor(W.clone(), W > 0),
    "NF4Weight": lambda: tensors.NF4Weight.from_float(W, 32),
    "QuantAwareWeight": lambda: tensors.QuantAwareWeight(W.clone()),
    "Sparse24Weight": lambda: sparse(W),
    "TwoTensor": lambda: tensors.TwoTensor(W.clone(), W + 1),
    "TwoTensor of Sparse24Weight": lambda: tensors.TwoTensor(sparse(W), sparse(W.t())),
    "ViewOf": lambda: sparse(W)[3:].t(),
    "Permuted": lambda: Permuted(W.clone(), torch.arange(64).flip(0)),
    "Permuted Int8Weight": lambda: Permuted(int8(W), torch.arange(64).flip(0)),
    "Masked": lambda: Masked(W.clone(), [W > 0, W > 1], W < 0),
    "Masked without": lambda: Masked(W.clone(), []),
    "Levels": lambda: Levels((W > 0).byte(), torch.tensor([-1.0, 1.0])),
    "Pruned by Sparse24Weight": lambda: Pruned(int8(W), sparse(W.t())),
}

FACTORIES: dict[str, Callable[[Any, Any], Any]] = {
    "empty_like": lambda x, device: torch.empty_like(x, device=device),
    "zeros_like": lambda x, device: torch.zeros_like(x, device=device),
    "ones_like": lambda x, device: torch.ones_like(x, device=device),
    "full_like": lambda x, device: torch.full_like(x, 2, device=device),
    "rand_like": lambda x, device: torch.rand_like(x, device=device),
    "randn_like": lambda x, device: torch.randn_like(x, device=device),
    "randint_like": lambda x, device: torch.randint_like(x, 5, device=device),
    "new_empty": lambda x, device: x.new_empty(x.shape, device=device),
    "new_empty of other sizes": lambda x, device: x.new_empty(32, 64, device=device),
    "new_empty_strided": lambda x, device: x.new_empty_strided(x.shape, x.stride(), device=device),
    "new_zeros": lambda x, device: x.new_zeros(x.shape, device=device),
    "new_ones": lambda x, device: x.new_ones(x.shape, device=device),
    "new_full": lambda x, device: x.new_full(x.shape, 3.0, device=device),
    "to": lambda x, device: x.to(device),
    "to, a copy": lambda x, device: x.to(device, copy=True),
    "to, of a dtype": lambda x, device: x.to(device, torch.bfloat16),
    "_to_copy": lambda x, device: torch.ops.aten._to_copy.default(x, device=device),
}
LINEAR = [name for name in MADE if not name.startswith(("Jagged", "Masked", "ViewOf"))]
MOVES = [name for name in FACTORIES if "to" in name.partition(",")[0]]

DOORS: dict[str, Callable[[Any], Any]] = {
    "eager mode": lambda program: program,
    "aot_compile": lambda program: sa.aot_compile(program, fw_compiler="eager"),
    "torch.compile": lambda program: torch.compile(program, backend="subclass_aot"),
}


def on(device: str, tensor: Any) -> None:
    assert {leaf.device.type for leaf in (tensor, *dense_leaves(tensor))} == {device}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("factory", FACTORIES)
def test_all_of_it_is_on_the_device(factory: str, name: str) -> None:
    program = FACTORIES[factory]
    for source, device in (("cpu", "meta"), ("meta", "cpu"), ("meta", "meta"), ("cpu", "cpu")):
        tensor = MADE[name]().to(source)
        on(source, tensor)
        if (source, device) == ("meta", "cpu") and factory in MOVES:
            with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
                program(tensor, device)
            continue
        try:
            made = program(tensor, device)
        except OperatorRuleError:  # not offered, whatever the device is
            with pytest.raises(OperatorRuleError):
                program(MADE[name](), "cpu")
            continue
        on(device, made)


@pytest.mark.parametrize("door", [name for name in DOORS if name != "eager mode"])
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize(
    "name", ["Sparse24Weight", "LoraWeight of Sparse24Weight", "Masked", "Pruned by Sparse24Weight"]
)
@pytest.mark.parametrize("factory", ["empty_like", "ones_like", "to"])
def test_compiled(factory: str, name: str, is_trained: bool, door: str) -> None:
    def program(x: Any) -> Any:
        return FACTORIES[factory](x, "meta")

    compiled = DOORS[door](program)
    for _ in range(2):
        tensor = MADE[name]().requires_grad_(is_trained)
        on("meta", compiled(tensor))


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", MADE)
def test_a_module_that_was_on_meta_is_loaded(name: str, door: str) -> None:
    tensor = MADE[name]()
    model = nn.Module()
    model.weight = nn.Parameter(tensor, requires_grad=False)
    saved = copy.deepcopy(model.state_dict())
    model.to("meta").to_empty(device="cpu")
    on("cpu", model.weight)
    model.load_state_dict(saved)
    assert plain(model.weight).equal(plain(tensor))  # without `to_plain`, all inner tensors
    program = (lambda x: F.linear(torch.ones(2, 64), x)) if name in LINEAR else (lambda x: x * 2)
    got, expected = DOORS[door](program)(model.weight.data), program(tensor)
    torch.testing.assert_close(*(list(dense_leaves(y)) for y in (got, expected)))


def structures() -> Iterator[tuple[Any, Any]]:
    yield sparse(W), lambda x: [x.places]
    yield MADE["Masked"](), lambda x: [*x.masks, x.other]
    yield MADE["Jagged"](), lambda x: [x.offsets]
    yield MADE["MaskedTensor"](), lambda x: [x.mask]
    yield MADE["Pruned by Sparse24Weight"](), lambda x: list(dense_leaves(x.pattern))


@pytest.mark.parametrize(("tensor", "parts"), list(structures()), ids=lambda x: type(x).__name__)
def test_structure_is_copied_or_zero(tensor: Any, parts: Any) -> None:
    """What has no values is zero: an index out of memory that nobody wrote reads beyond the end of a tensor."""
    for device in (None, "cpu"):
        copied = parts(torch.empty_like(tensor, device=device))
        assert all(map(torch.equal, copied, parts(tensor)))
        assert not {x.data_ptr() for x in copied} & {x.data_ptr() for x in parts(tensor)}
    made = torch.empty_like(tensor.to("meta"), device="cpu")
    assert type(made) is type(tensor)
    for part, first in zip(parts(made), parts(tensor), strict=True):
        assert not part.any() and (part.dtype, part.stride()) == (first.dtype, first.stride())
