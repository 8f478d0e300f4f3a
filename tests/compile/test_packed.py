"""Packed sequences whose lengths are known: as in eager mode, with gradients; others are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence

from subclass_aot import aot_compile
from subclass_aot.errors import DataDependentError
from subclass_aot.testing import check_compiled

LSTM = torch.nn.LSTM(2, 3, batch_first=True, bidirectional=True)
GRU = torch.nn.GRU(2, 3, num_layers=2)


def a_sequence(x: Any) -> Any:
    return pack_padded_sequence(x * 2, [6, 4, 3, 2], batch_first=True)


def its_elements(x: Any) -> Any:
    return a_sequence(x).data.sin()


def its_steps(x: Any) -> Any:
    steps = a_sequence(x).batch_sizes
    return x[: int(steps[-1])], steps * 2


def a_layer(x: Any) -> Any:
    packed, (h, c) = LSTM(a_sequence(x))
    return packed.data, h, c


def in_another_order(x: Any) -> Any:
    packed, h = GRU(pack_padded_sequence(x.transpose(0, 1), torch.tensor([2, 6, 1, 5]), enforce_sorted=False))
    return packed, h


def of_several(x: Any) -> Any:
    return pack_sequence([x[0, :3], x[1], x[2, :1]], enforce_sorted=False).data


@pytest.mark.parametrize("program", [a_sequence, its_elements, its_steps, a_layer, in_another_order, of_several])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_as_in_eager(program: Any, requires_grad: bool) -> None:
    torch.manual_seed(0)
    check_compiled(program, [torch.randn(4, 6, 2, requires_grad=requires_grad)])


def test_parameters_of_a_layer_get_gradients() -> None:
    module, x = torch.nn.LSTM(2, 3, batch_first=True), torch.randn(4, 6, 2)
    compiled = aot_compile(lambda x: module(a_sequence(x))[0].data.square().sum())
    compiled(x).backward()
    got = [p.grad for p in module.parameters()]
    module.zero_grad()
    module(a_sequence(x))[0].data.square().sum().backward()
    torch.testing.assert_close(got, [p.grad for p in module.parameters()])


def test_lengths_that_are_an_argument() -> None:
    def pack(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return pack_padded_sequence(x, lengths, batch_first=True).data

    compiled = aot_compile(pack)
    for lengths in ([3, 1], [2, 2], [3, 1]):
        x = torch.randn(2, 3, 1)
        assert torch.equal(compiled(x, torch.tensor(lengths)), pack(x, torch.tensor(lengths)))
    assert len(compiled.recompiles) == 1
    with pytest.raises(DataDependentError, match="_pack_padded_sequence.default asks for values"):
        aot_compile(pack, values="refuse")(torch.randn(2, 3, 1), torch.tensor([3, 1]))


class Config:
    lengths = torch.tensor([3, 1])


def test_lengths_that_a_class_holds() -> None:
    """Whoever owns the tensor may write into it between two calls."""
    def pack(x: torch.Tensor) -> torch.Tensor:
        return pack_padded_sequence(x, Config.lengths, batch_first=True).data

    compiled, x = aot_compile(pack), torch.randn(2, 3, 1)
    assert torch.equal(compiled(x), pack(x))
    Config.lengths.copy_(torch.tensor([2, 2]))
    try:
        assert torch.equal(compiled(x), pack(x))
    finally:
        Config.lengths.copy_(torch.tensor([3, 1]))
    with pytest.raises(DataDependentError, match="_pack_padded_sequence.default asks for values"):
        aot_compile(pack, values="refuse")(x)


def test_lengths_in_another_order_raise_as_in_eager() -> None:
    compiled = aot_compile(lambda x: pack_padded_sequence(x, [1, 3], batch_first=True).data)
    with pytest.raises(RuntimeError, match="sorted in decreasing order"):
        compiled(torch.randn(2, 3, 1))
