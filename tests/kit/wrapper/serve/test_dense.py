"""A `to_plain` that gives another dtype or size than `outer_metadata` says is refused where an operator takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import OperatorRuleError


class Wide(sa.WrapperTensor):
    """Says bfloat16 and gives float32, as a table does that stays as it is."""

    codes: torch.Tensor

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.codes, dtype=torch.bfloat16)

    def to_plain(self) -> Any:
        return self.codes.float()


class Longer(sa.WrapperTensor):
    """Says two rows less than it gives, as a class does that forgets to cut padding."""

    values: torch.Tensor

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.values, size=(self.values.shape[0] - 2, self.values.shape[1]))

    def to_plain(self) -> Any:
        return self.values * 1


class Flat(sa.WrapperTensor):
    """Forgets to give its rows and columns back."""

    values: torch.Tensor

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.values, size=(self.values.shape[0] // 3, 3))

    def to_plain(self) -> Any:
        return self.values * 1


class LowRank(sa.WrapperTensor):
    """A product, which autocast would compute in bfloat16."""

    left: torch.Tensor
    right: torch.Tensor

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.left, size=(self.left.shape[0], self.right.shape[1]))

    def to_plain(self) -> Any:
        return self.left @ self.right


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1,
    "sum": lambda x: x.sum(),
    "product": lambda x: x @ torch.ones(3, 2, dtype=x.dtype),
    "linear": lambda x: torch.nn.functional.linear(torch.ones(1, 3, dtype=x.dtype), x),
    "cat": lambda x: torch.cat([x, x]),
    "out": lambda x: torch.add(x, 1, out=torch.empty(2, 3, dtype=x.dtype)),
    "view": lambda x: x[1:] * 2,
    "copy": lambda x: torch.zeros(2, 3, dtype=x.dtype).copy_(x),
    "conversion": lambda x: x.to(torch.int32),
}
DOORS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "aot_compile": sa.aot_compile,
    "aot_compile, dynamic": lambda f: sa.aot_compile(f, dynamic=True),
    "torch.compile": lambda f: torch.compile(f, backend="subclass_aot"),
}
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "dtype": (
        lambda: Wide(torch.ones(2, 3, dtype=torch.int8)),
        r"Wide.to_plain\(\) gives torch.float32 \[.*3\], and Wide.outer_metadata\(\) says torch.bfloat16 \[.*3\]",
    ),
    "size": (
        lambda: Longer(torch.ones(4, 3)),
        r"Longer.to_plain\(\) gives torch.float32 .*, and Longer.outer_metadata\(\) says",
    ),
    "dims": (
        lambda: Flat(torch.ones(6)),
        r"Flat.to_plain\(\) gives torch.float32 .*, and Flat.outer_metadata\(\) says",
    ),
}


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("wrong", WRONG)
def test_another_dtype_or_size(wrong: str, door: str) -> None:
    make, words = WRONG[wrong]
    for operator in OPERATORS.values():
        torch.compiler.reset()
        with pytest.raises(OperatorRuleError if door == "eager" else Exception, match=words):
            DOORS[door](operator)(make())


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_under_autocast_it_is_what_it_is_without(operator: str, door: str) -> None:
    x = LowRank(torch.randn(2, 4), torch.randn(4, 3))
    plain = x.left @ x.right
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = OPERATORS[operator](plain), DOORS[door](OPERATORS[operator])(x)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    # What autocast casts, it casts field by field, so that a product is one of rounded parts.
    rounded = expected.dtype is torch.bfloat16
    torch.testing.assert_close(found, expected, **({"rtol": 0.05, "atol": 0.1} if rounded else {"rtol": 0, "atol": 0}))


class Padded(sa.WrapperTensor):
    """Has a row more than it says, so that its size is that of a slice."""

    values: torch.Tensor

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.values, size=(self.values.shape[0] - 1, self.values.shape[1]))

    def to_plain(self) -> Any:
        return self.values[:-1]


def test_symbolic_sizes_are_compared_without_a_guard() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def compiler(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    compiled = sa.aot_compile(lambda x: x * 2, fw_compiler=compiler, dynamic=True)
    for rows in (3, 5, 9):
        x = Padded(torch.randn(rows, 7))
        assert torch.equal(compiled(x), x.values[:-1] * 2)
    assert len(graphs) == 1


def test_autocast_does_not_reach_into_a_view() -> None:
    x = LowRank(torch.randn(4, 4), torch.randn(4, 3))
    plain, view = x.to_plain(), x[1:3]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(view.to_plain(), plain[1:3])
