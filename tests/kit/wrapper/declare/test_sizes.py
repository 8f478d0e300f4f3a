"""Sizes that outer rules compare: numbers, and never symbols."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Outer, WrapperTensor, aot_compile
from subclass_aot.errors import InnerTensorError, OperatorRuleError
from subclass_aot.kit.wrapper.declare.outer_cache import follows_from_metadata, reads_only_metadata


class Rows(WrapperTensor):
    """Codes, and a scale for each row."""

    codes: torch.Tensor
    scale: torch.Tensor
    note: str = ""

    def outer_metadata(self) -> Outer:
        if not Outer.lines_up(self.codes, self.scale):
            raise Outer.misfit(self, "codes[M, N] and scale[M or 1, N or 1]")
        if Outer.are_known(self.codes) and len(self.codes.shape) != 2:
            raise Outer.misfit(self, "codes[M, N]")
        return Outer.like(self.codes)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale


@pytest.mark.parametrize("size", [(4, 6), (4, 1), (1, 6), (1, 1), (6,), (1,), ()])
def test_what_lines_up(size: tuple[int, ...]) -> None:
    assert Outer.lines_up(torch.ones(4, 6), torch.ones(size), None)
    assert Outer.lines_up(torch.ones(0, 6), torch.ones(size)) == (len(size) < 2 or size[0] == 1)


@pytest.mark.parametrize("size", [(4, 5), (5, 1), (0, 1), (4, 12), (4,), (1, 4, 6), (4, 6, 1)])
def test_what_does_not(size: tuple[int, ...]) -> None:
    assert not Outer.lines_up(torch.ones(4, 6), torch.ones(size))
    with pytest.raises(InnerTensorError, match=r"Rows: the sizes codes\[4, 6\], scale\[.*\] do not fit. Right: codes"):
        Rows(torch.ones(4, 6), torch.ones(size))


def test_wherever_a_tensor_is_made() -> None:
    rows = Rows(torch.ones(4, 6), torch.ones(4, 1), "a")
    with pytest.raises(InnerTensorError, match="do not fit"):
        rows.scale = torch.ones(3, 1)
    with pytest.raises(InnerTensorError, match="do not fit"):
        Rows.__tensor_unflatten__({"codes": rows.codes, "scale": torch.ones(3, 1)}, ("a",), (4, 6), (6, 1))
    with pytest.raises(OperatorRuleError, match=r"(?s)the sizes codes\[0\], scale\[0\] do not fit.*for shards"):
        rows.new_empty(0)


def test_such_a_rule_is_cached() -> None:
    assert reads_only_metadata(Rows)
    assert follows_from_metadata(Rows(torch.ones(4, 6), torch.ones(4, 1), "a"))


def test_symbols_are_not_compared() -> None:
    def program(x: Any, y: Any) -> Any:
        kept = x[x[:, 0] > 0]  # as many rows as the values have it
        return Rows(kept, y[: kept.shape[0] * 1]) * 2, Rows(x, x[:, :1]).to_plain()

    compiled = aot_compile(program, fw_compiler="eager", dynamic=True)
    for rows in (4, 5, 6):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(compiled(x, x), program(x, x))


def test_compiled_functions_compare_what_they_are_given() -> None:
    compiled = aot_compile(lambda x, y: Rows(x, y) * 2, fw_compiler="eager", dynamic=False)
    compiled(torch.ones(4, 6), torch.ones(4, 1))
    for _ in range(2):
        with pytest.raises(InnerTensorError, match=r"codes\[4, 6\], scale\[3, 1\]"):
            compiled(torch.ones(4, 6), torch.ones(3, 1))
