"""Packed sequences whose lengths are known: as in eager mode, with gradients; others are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import subclass_aot as sa
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


def padded_again(x: Any) -> Any:
    return pad_packed_sequence(a_sequence(x), batch_first=True)


def padded_otherwise(x: Any) -> Any:
    padded, lengths = pad_packed_sequence(a_sequence(x), padding_value=-2.5, total_length=9)
    return padded.exp(), lengths * 2


def padded_in_order(x: Any) -> Any:
    packed = pack_padded_sequence(x, [2, 6, 1, 5], batch_first=True, enforce_sorted=False)
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    return padded[:, : int(lengths.max())].sum(1), lengths


def through_a_layer(x: Any) -> Any:
    return pad_packed_sequence(LSTM(a_sequence(x))[0], batch_first=True, padding_value=1.0)


def through_layers(x: Any) -> Any:
    packed = pack_padded_sequence(x.transpose(0, 1), [2, 6, 1, 5], enforce_sorted=False)
    return pad_packed_sequence(GRU(packed)[0], total_length=7)


PROGRAMS = [
    a_sequence, its_elements, its_steps, a_layer, in_another_order, of_several,
    padded_again, padded_otherwise, padded_in_order, through_a_layer, through_layers,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_as_in_eager(program: Any, requires_grad: bool) -> None:
    torch.manual_seed(0)
    check_compiled(program, [torch.randn(4, 6, 2, requires_grad=requires_grad)])


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
@pytest.mark.parametrize("program", [padded_in_order, through_a_layer, through_layers])
def test_with_inductor(program: Any) -> None:
    check_compiled(program, [torch.randn(4, 6, 2, requires_grad=True)], fw_compiler="inductor", rtol=1e-4, atol=1e-5)


def test_with_symbolic_sizes() -> None:
    check_compiled(through_a_layer, [torch.randn(4, 6, 2, requires_grad=True)], dynamic=True)


def test_without_data() -> None:
    expected, lengths = through_a_layer(torch.randn(4, 6, 2))
    with sa.meta():
        padded, known = through_a_layer(torch.randn(4, 6, 2, requires_grad=True))
        padded.sum().backward()
    assert padded.shape == expected.shape and padded.stride() == expected.stride()
    assert known.tolist() == lengths.tolist()


def test_a_sequence_that_is_an_argument() -> None:
    def pad(packed: PackedSequence) -> torch.Tensor:
        return pad_packed_sequence(packed)[0]

    compiled = aot_compile(pad)
    for lengths in ([2, 1], [2, 2], [2, 1]):
        packed = pack_sequence([torch.randn(n, 1) for n in lengths])
        assert torch.equal(compiled(packed), pad(packed))
    compiled = aot_compile(lambda packed: pad_packed_sequence(packed)[0], values="refuse")
    with pytest.raises(DataDependentError, match="The sizes of the steps of a PackedSequence are not known") as caught:
        compiled(pack_sequence([torch.randn(2, 1), torch.randn(1, 1)]))
    assert "pad_packed_sequence(packed)[0]" in str(caught.value)


LAYERS = {
    "gru": torch.nn.GRU(2, 3),
    "lstm": torch.nn.LSTM(2, 3, bidirectional=True),
    "lstm with projections": torch.nn.LSTM(2, 4, proj_size=2),
    "tanh": torch.nn.RNN(2, 3, batch_first=True),
    "relu": torch.nn.RNN(2, 3, nonlinearity="relu", bidirectional=True),
}


def of_lengths(lengths: list[int]) -> PackedSequence:
    """In the order of the lengths, or in another one."""
    x = torch.randn(max(lengths), len(lengths), 2, requires_grad=True)
    return pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=lengths == sorted(lengths, reverse=True))


def outcome(module: Any, parameters: list[torch.Tensor], packed: PackedSequence) -> Any:
    results = module(packed)
    tensors = [x for x in torch.utils._pytree.tree_leaves(results) if x is not None]
    loss = sum((x * x).sum() for x in tensors if x.requires_grad)
    assert type(results[0]) is PackedSequence
    return tensors, torch.autograd.grad(loss, [packed.data, *parameters], retain_graph=True)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_layers_of_a_sequence_that_is_an_argument(name: str, dynamic: bool | None) -> None:
    """The kernel reads the sizes of the steps, so their values are what the call is compiled for."""
    module = LAYERS[name]
    compiled = aot_compile(module, dynamic=dynamic)
    for lengths in ([3, 2], [2, 2], [3, 2], [2, 3, 1]):
        packed, parameters = of_lengths(lengths), list(module.parameters())
        torch.testing.assert_close(outcome(compiled, parameters, packed), outcome(module, parameters, packed))
    assert len(compiled.recompiles) == 2


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("allow_rnn", [False, True])
def test_torch_compile_of_layers(allow_rnn: bool) -> None:
    with torch._dynamo.config.patch(allow_rnn=allow_rnn):
        module = LAYERS["lstm"]
        compiled, parameters = torch.compile(module, backend="subclass_aot"), list(module.parameters())
        for lengths in ([4, 2], [3, 3]):
            packed = of_lengths(lengths)
            torch.testing.assert_close(outcome(compiled, parameters, packed), outcome(module, parameters, packed))


def test_a_layer_and_padding_of_a_sequence_that_is_an_argument() -> None:
    def program(packed: PackedSequence) -> Any:
        found, h = LAYERS["gru"](packed)
        return pad_packed_sequence(found, padding_value=2.0), h

    compiled = aot_compile(program)
    for lengths in ([4, 2], [3, 3], [4, 2]):
        packed = of_lengths(lengths)
        torch.testing.assert_close(compiled(packed), program(packed))


def test_a_layer_of_steps_that_nobody_knows() -> None:
    parameters = [p.detach() for p in LAYERS["gru"].parameters()]

    def kernel(packed: PackedSequence) -> Any:  # the module looks at the steps, too
        options = True, 1, 0.0, False, False
        return torch._VF.gru(packed.data, packed.batch_sizes, torch.zeros(1, 2, 3), parameters, *options)

    with pytest.raises(DataDependentError, match="PackedSequence are not known, so it cannot go through a layer"):
        aot_compile(kernel, values="refuse")(of_lengths([4, 2]))


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
