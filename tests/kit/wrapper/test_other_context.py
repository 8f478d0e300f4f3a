"""A `from_plain` that gives another context: a write by it is refused by name, since a context cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.errors import OperatorRuleError


class Number(sa.WrapperTensor):
    """Has one scale for all, as a Python number, which `from_plain` finds anew."""

    codes: torch.Tensor
    scale: float

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.codes, dtype=torch.float32)

    def to_plain(self) -> Any:
        return self.codes * self.scale

    def from_plain(self, plain: Any) -> Any:
        return Number.of(plain)

    @staticmethod
    def of(plain: torch.Tensor) -> Any:
        scale = float(plain.abs().max()) / 127
        return Number((plain / scale).round().to(torch.int8), scale)


class Doubling(Number):
    """Gives another context, and reads no value."""

    def from_plain(self, plain: Any) -> Any:
        return Doubling(plain.to(torch.int8), self.scale * 2)


class Tensor(Number):
    """Has it as a tensor, as the error says."""

    codes: torch.Tensor
    scale: torch.Tensor  # type: ignore[assignment]

    def from_plain(self, plain: Any) -> Any:
        scale = plain.abs().amax() / 127
        return Tensor((plain / scale).round().to(torch.int8), scale)


def loaded(x: Any) -> None:
    layer = nn.Linear(3, 2, bias=False)
    layer.weight = nn.Parameter(x, requires_grad=False)
    layer.load_state_dict({"weight": torch.full((2, 3), 126.0)})


def dense() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) - 2


WRITES: dict[str, Callable[[Any], object]] = {
    "mul_": lambda x: x.mul_(10),
    "copy_": lambda x: x.copy_(torch.full((2, 3), 9.0)),
    "copy_ of another": lambda x: x.copy_(Number.of(dense() * 100)),
    "fill_": lambda x: x.fill_(50.0),
    "out": lambda x: torch.add(x, 10.0, out=x),
    "foreach": lambda x: torch._foreach_mul_([x], 10.0),
    "a row": lambda x: x.requires_grad_(False).add_(torch.ones(3) * 5),
    "load_state_dict": loaded,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_is_refused(write: Callable[[Any], object]) -> None:
    x = Number.of(dense())
    before = x.to_plain()
    with pytest.raises((OperatorRuleError, RuntimeError), match=r"from_plain gives a Number with scale=.*tensor field"):
        write(x)
    assert x.to_plain().equal(before)


@pytest.mark.parametrize("compile", [sa.aot_compile, lambda f: torch.compile(f, backend="subclass_aot")])
@pytest.mark.parametrize("write", [lambda x, y: x.copy_(y), lambda x, y: x.add_(y), lambda x, y: x.mul_(2)])
def test_a_compiled_write_is_refused(compile: Any, write: Any, fresh_dynamo: None) -> None:
    x = Doubling(torch.ones(2, 3, dtype=torch.int8), 2.0)
    with pytest.raises(Exception, match=r"from_plain gives a Doubling with scale=4\.0"):
        compile(write)(x, torch.ones(2, 3))
    assert x.codes.equal(torch.ones(2, 3, dtype=torch.int8))


def test_the_same_context_is_written() -> None:
    x = Number(torch.tensor([[127, -1, 3]], dtype=torch.int8), 1.0)
    x.copy_(torch.tensor([[1.0, 2.0, 127.0]]))
    assert x.codes.tolist() == [[1, 2, 127]]


@pytest.mark.parametrize("name", [name for name in WRITES if name not in ("copy_ of another", "load_state_dict")])
def test_a_scale_in_a_tensor_is_written(name: str) -> None:
    x: Any = Tensor((dense() / 3 * 127).round().to(torch.int8), torch.tensor(3 / 127))
    expected = x.to_plain()
    WRITES[name](expected)
    WRITES[name](x)
    torch.testing.assert_close(x.to_plain(), expected, rtol=0.02, atol=0.5)
