"""FSDP2's hooks: what travels, and what comes of it. In two processes, `sharded_ranks.py` has the programs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from subclass_aot import Int8Weight, Outer, QuantAwareWeight, TwoTensor, WrapperTensor
from subclass_aot.errors import OperatorRuleError, ShardingError
from subclass_aot.ranks.sharding import post_all_gather, pre_all_gather
from subclass_aot.tensors import LoraWeight, Sparse24Weight
from tests import on_ranks
from tests.kit.wrapper.classes import Many, Scaled, everything
from tests.kit.wrapper.layout.test_field_map import Offsets
from tests.torches import TORCH

REFUSALS = {
    "uneven, and a field for all rows": "all rows share scale[1, 6], and the ranks do not have equally many rows",
    "trained, and a field for all rows": "all rows share scale[1, 6], and after a step of an optimizer",
    "no views": 'FSDP2 cannot carry a Plain.\n  why: it declares no views="broadcast"',
    "packed": "of packed[8, 3] in a tensor of [8, 6], it cannot tell what it is in [4, 6]",
    "other rows": "on a Offsets gives one answer, and its inner tensors have several: {'content': 2, 'offsets': 3}",
    "columns": "[8, 6] is cut into [8, 3]",
    "gradients of pairs": "the gradient of a parameter is a TwoTensor of ['a', 'b']",
    "aot_compile": "was given to fully_shard",
}
if TORCH == (2, 11):  # its FSDP wants parameters that could require grad
    REFUSALS |= {
        f"field by field, {name}": "only Tensors of floating point dtype can require gradients"
        for name in ("Sparse24Weight", "Sparse24Weight, frozen", "Int4Weight", "NF4Weight")
    }
OTHERS = 106 if TORCH == (2, 11) else 110


def test_two_ranks(tmp_path: Path) -> None:
    for found in on_ranks.run(Path(__file__).with_name("sharded_ranks.py"), tmp_path):
        for name, text in REFUSALS.items():
            assert text in found.pop(name)
        on_ranks.nothing_wrong(found)
        assert len(found) == OTHERS


def shards_of(whole: Any, ranks: int) -> list[Any]:
    """What `fully_shard` makes of a parameter: the parts of all ranks, padded and cut again."""
    chunks = list(whole.chunk(ranks))
    chunks += [whole.new_empty(0)] * (ranks - len(chunks))
    found = []
    for chunk in chunks:
        padded = whole.new_zeros(chunks[0].shape)
        rows = chunk.shape[0] if chunk.numel() else 0
        if rows:
            padded.narrow(0, 0, rows).copy_(chunk)
        padded.view(-1)
        found.append(padded.narrow(0, 0, rows))
    return found


def sent(whole: Any, ranks: int, dtype: torch.dtype | None = None, module: Any = None) -> list[Any]:
    policy, mesh = SimpleNamespace(param_dtype=dtype), SimpleNamespace(size=lambda: ranks)
    return [
        pre_all_gather(shard, mesh, whole.shape, module or nn.Module(), policy) for shard in shards_of(whole, ranks)
    ]


def gathered(parts: list[Any]) -> list[torch.Tensor]:
    """What arrives on each rank, as FSDP2 has it: flat, then in the size that the first dim is to grow from.

    Of a single rank it takes the first tensor, and leaves out the others.
    """
    found = []
    for tensors in zip(*[inputs for inputs, _ in parts], strict=True):
        assert len({(tensor.shape, tensor.dtype) for tensor in tensors}) == 1
        flat = torch.cat([tensor.view(-1) for tensor in tensors])
        found.append(flat.view(-1, *tensors[0].shape[1:]))
    return found if len(parts) > 1 else found[:1]


def leaves(x: Any) -> list[torch.Tensor]:
    if not hasattr(x, "__tensor_flatten__"):
        return [x]
    return [leaf for name in x.__tensor_flatten__()[0] for leaf in leaves(getattr(x, name))]


def assert_same(mine: Any, theirs: Any) -> None:
    assert type(mine) is type(theirs) and mine.shape == theirs.shape and mine.dtype == theirs.dtype
    assert mine.is_contiguous() and mine.__tensor_flatten__() == theirs.__tensor_flatten__()
    for one, other in zip(leaves(mine), leaves(theirs), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def int8(rows: int) -> Any:
    return Int8Weight.from_float(torch.randn(rows, 5))


MAKE = {
    "Int8Weight": int8,
    "with a zero point": lambda rows: Int8Weight(int8(rows).codes, torch.rand(rows, 1), torch.rand(rows, 1)),
    "TwoTensor": lambda rows: TwoTensor(torch.randn(rows, 5), torch.randn(rows, 5)),
    "QuantAwareWeight": lambda rows: QuantAwareWeight(torch.randn(rows, 5)),
    "TwoTensor of Int8Weight": lambda rows: TwoTensor(int8(rows), int8(rows)),
    "Int8Weight of TwoTensor": lambda rows: Int8Weight(
        int8(rows).codes, TwoTensor(torch.rand(rows, 1), torch.rand(rows, 1))
    ),
    "Many": lambda rows: Many([torch.randn(rows), torch.randn(rows)], torch.rand(rows), "label"),
    "one dim": lambda rows: Int8Weight(torch.ones(rows, dtype=torch.int8), torch.rand(rows)),
}


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE.keys())
@settings(deadline=None, max_examples=25)
@given(rows=st.integers(1, 13), ranks=st.integers(1, 5))
def test_the_whole_comes_together_again(make: Any, rows: int, ranks: int) -> None:
    whole = make(rows)
    parts = sent(whole, ranks)
    outputs = gathered(parts)
    for _, gathering in parts:
        mine, freed = post_all_gather(outputs, gathering)
        assert_same(mine, whole)
    padded = -(-rows // ranks)
    if padded * ranks != rows:  # FSDP2 asks for it
        assert all(tensor.shape == (padded, *whole.shape[1:]) for inputs, _ in parts for tensor in inputs)
    for tensor in (*freed, *outputs):
        tensor.untyped_storage().resize_(0)
    for tensor in (*freed, *outputs):
        tensor.untyped_storage().resize_(tensor.numel() * tensor.itemsize)
        tensor.view(torch.uint8).fill_(77)
    again = make(rows)
    parts = sent(again, ranks)
    for output, filled in zip(outputs, gathered(parts), strict=True):
        output.copy_(filled)
    before = [leaf._version for leaf in leaves(mine)]
    assert post_all_gather(outputs, parts[-1][1], out=nn.Parameter(mine, requires_grad=False)) is None
    assert_same(mine.detach(), again)
    assert [leaf._version for leaf in leaves(mine)] == before


def test_codes_travel_as_codes() -> None:
    inputs = [parts for parts, _ in sent(int8(8), 2)]
    assert [(tensor.dtype, tuple(tensor.shape)) for tensor in inputs[0]] == [
        (torch.int8, (4, 5)),
        (torch.float32, (4, 1)),
    ]
    packed = [parts for parts, _ in sent(int8(7), 2)]
    assert [(tensor.dtype, tuple(tensor.shape)) for tensor in packed[1]] == [(torch.uint8, (4, 5))] * 2


def test_in_another_dtype_codes_stay_codes() -> None:
    whole = int8(8)
    parts = sent(whole, 2, torch.bfloat16)
    assert [tensor.dtype for tensor in parts[0][0]] == [torch.int8, torch.bfloat16]
    mine, _ = post_all_gather(gathered(parts), parts[0][1])
    assert_same(mine, whole.to(torch.bfloat16))


def coded(rows: int, **changes: torch.Tensor) -> Scaled:
    codes = torch.randint(0, 5, (rows, 4))
    fields = {"scale": torch.rand(rows, 1), "shift": torch.tensor(0.5), "table": torch.rand(5)}
    return Scaled(codes, **{**fields, **changes})


def test_what_all_rows_share_stays_at_home() -> None:
    whole = coded(6, scale=torch.rand(1, 4))
    parts = sent(whole, 3)
    assert [len(inputs) for inputs, _ in parts] == [1, 1, 1]
    outputs = gathered(parts)
    mine, freed = post_all_gather(outputs, parts[1][1])
    assert_same(mine, whole)
    held = {mine.codes.data_ptr(), mine.scale.data_ptr(), mine.shift.data_ptr(), mine.table.data_ptr()}
    assert {tensor.data_ptr() for tensor in freed} == held and outputs[0].data_ptr() in held
    assert not held & {leaf.data_ptr() for leaf in leaves(parts[1][1].shard)}
    parts[1][1].shard.table.zero_()
    post_all_gather(outputs, parts[1][1], out=mine)
    assert mine.table.count_nonzero() == 0


def test_a_shared_field_of_one_row_is_each_ranks_own() -> None:
    """Of one row nobody can tell; so the whole has it for each row, and means the same."""
    whole = coded(2, scale=torch.rand(1, 4))
    parts = sent(whole, 2)
    mine, _ = post_all_gather(gathered(parts), parts[0][1])
    assert mine.scale.shape == (2, 4)
    torch.testing.assert_close(mine.to_plain(), whole.to_plain())


def trained(x: Any) -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(x)
    return module


def test_of_what_is_trained_only_what_is_declared_may_be_shared() -> None:
    whole = coded(4, scale=torch.rand(1, 4))
    shard = shards_of(whole, 2)[0]
    for place in (r"scale\[1, 4\]", r"shift\[\]"):
        with pytest.raises(ShardingError, match=f"all rows share {place}, and after a step of an optimizer"):
            sent(whole, 2, module=trained(shard))
        whole.scale = torch.rand(4, 1)
    sent(whole, 2)
    with pytest.raises(ShardingError, match=r'say views=\{"shift": "keep"\} if no write changes it'):
        sent(coded(4), 2, module=trained(shards_of(coded(4), 2)[0]))


class Sized(WrapperTensor, views="broadcast"):
    """Its size stands in the context, and an author's rules see to it."""

    value: torch.Tensor
    rows: int

    def outer_metadata(self) -> Outer:
        return Outer.like(self.value, size=(self.rows, *self.value.shape[1:]))


def test_a_size_in_the_context_is_not_that_of_the_whole() -> None:
    policy, mesh = SimpleNamespace(param_dtype=None), SimpleNamespace(size=lambda: 2)
    inputs, gathering = pre_all_gather(Sized(torch.ones(2, 3), 2), mesh, (4, 3), nn.Module(), policy)
    with pytest.raises(
        ShardingError, match=r"with the rows of all ranks its `outer_metadata` has \[2, 3\], and \[4, 3\] was cut"
    ):
        post_all_gather([torch.cat([inputs[0], inputs[0]])], gathering)
    with pytest.raises(OperatorRuleError, match=r"it would have size \[2, 3\]"):
        Sized(torch.ones(2, 3), 2).new_zeros(4, 3)


@pytest.mark.parametrize("whole", [LoraWeight.beside(torch.ones(4, 4), 2), Sparse24Weight.from_float(torch.ones(4, 4))])
def test_where_rows_are_not_those_of_fields_the_error_says_how_they_travel(whole: torch.Tensor) -> None:
    with pytest.raises(OperatorRuleError, match=r"for shards:.*train_fields\(module, name, \.\.\.\)"):
        shards_of(whole, 2)


@pytest.mark.parametrize(
    ("make", "error", "why"),
    [
        (lambda: Offsets(torch.ones(4), torch.ones(6)), OperatorRuleError, r"{'content': 2, 'offsets': 3}"),
        (lambda: everything(), OperatorRuleError, "everything|Everything"),
    ],
)
def test_a_class_that_cannot_be_cut_is_refused(make: Any, error: Any, why: str) -> None:
    with pytest.raises(error, match=why):
        sent(make(), 2)
