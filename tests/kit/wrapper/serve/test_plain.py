"""The fallback "plain": what an operator without a rule does is what it does on `to_plain()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, Outer, TwoTensor, aot_compile
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.kit.wrapper.serve.plain import plain_tangent
from tests.kit.wrapper.classes import Pair, pair, rounded, scaled


def test_operators_without_rule_run_on_the_plain_tensor() -> None:
    x = rounded()
    plain = x.to_plain()
    torch.testing.assert_close(x + 1, plain + 1)
    torch.testing.assert_close(torch.cat([x, torch.ones(1, 3)]), torch.cat([plain, torch.ones(1, 3)]))
    torch.testing.assert_close(torch.addmm(x, x, input_ := torch.ones(3, 3)), torch.addmm(plain, plain, input_))
    assert torch.zeros(2, 3).add_(x).sum() == plain.sum()
    assert torch.add(x, x, out=torch.empty(2, 3)).sum() == 2 * plain.sum()
    assert torch.zeros(2, 3).copy_(x).sum() == plain.sum()


def test_writes_go_through_from_plain() -> None:
    x = rounded()
    codes = x.codes
    assert x.mul_(3) is x and x.codes is codes
    assert codes.tolist() == [[0, 3, 6], [9, 12, 15]]
    x.copy_(torch.full((3,), 2.0))
    assert codes.tolist() == [[4, 4, 4], [4, 4, 4]]
    x.copy_(rounded())
    assert codes.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert torch.add(torch.ones(2, 3), 1, out=x) is x
    assert codes.tolist() == [[4, 4, 4], [4, 4, 4]]
    x[0].fill_(1)
    assert codes.tolist() == [[2, 2, 2], [4, 4, 4]]


class Lookup(WrapperTensor, views="broadcast"):
    """Codes of a table of four levels: memory that nobody has written is no code."""

    codes: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=torch.float32)

    def to_plain(self) -> torch.Tensor:
        return torch.arange(4.0)[self.codes.int()]

    def from_plain(self, plain: torch.Tensor) -> Lookup:
        return Lookup(plain.clamp(0, 3).round().to(torch.uint8))


def unwritten() -> Lookup:
    return Lookup(torch.full((4, 6), 255, dtype=torch.uint8))


def twos() -> Lookup:
    return Lookup(torch.full((4, 6), 2, dtype=torch.uint8))


FILLS: dict[str, Callable[[torch.Tensor], object]] = {
    "bernoulli_": lambda x: x.bernoulli_(0.5),
    "uniform_": lambda x: x.uniform_(0, 3),
    "normal_": lambda x: x.normal_(),
    "random_": lambda x: x.random_(0, 2),
    "exponential_": lambda x: x.exponential_(),
    "fill_": lambda x: x.fill_(1),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(torch.ones(4, 6)),
    "out=": lambda x: torch.add(torch.ones(4, 6), 1, out=x),
    "_foreach_zero_": lambda x: torch._foreach_zero_([x, unwritten()]),
    "a row": lambda x: [row.bernoulli_(0.5) for row in x],
    "transposed": lambda x: x.t().uniform_(0, 3),
    "init": lambda x: torch.nn.init.kaiming_uniform_(x),
}


@pytest.mark.parametrize("what", FILLS)
def test_what_fills_a_wrapper_reads_none_of_it(what: str) -> None:
    wants = torch.empty(4, 6)
    torch.manual_seed(1)
    FILLS[what](wants)
    x = unwritten()
    torch.manual_seed(1)
    FILLS[what](x)
    torch.testing.assert_close(x.to_plain(), wants.clamp(0, 3).round())


def test_dropout_in_memory_that_nobody_has_written() -> None:
    def dropout(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    torch.use_deterministic_algorithms(True)  # which fills that memory with 255
    try:
        for program in (dropout, aot_compile(dropout)):
            torch.manual_seed(1)
            got = program(twos())
            torch.manual_seed(1)
            assert torch.equal(got, dropout(torch.full((4, 6), 2.0)))
    finally:
        torch.use_deterministic_algorithms(False)


def test_writes_without_from_plain() -> None:
    with pytest.raises(OperatorRuleError, match="it writes to `self`, and Scaled has no from_plain"):
        scaled().mul_(2)
    with pytest.raises(OperatorRuleError, match="Scaled has no method from_plain"):
        scaled().copy_(torch.zeros(3, 4))
    with pytest.raises(OperatorRuleError, match="it writes to `self`, and Scaled has no from_plain"):
        torch._foreach_add_([scaled()], 1)
    with pytest.raises(OperatorRuleError, match="it changes the sizes or strides"):
        scaled().resize_(2)


def test_fallback_error_keeps_to_plain_for_the_author() -> None:
    class Strict(WrapperTensor, fallback="error"):
        payload: torch.Tensor

        def to_plain(self) -> torch.Tensor:
            return self.payload

    with pytest.raises(OperatorRuleError, match="No rule"):
        Strict(torch.zeros(2)) + 1


def test_a_gradient_is_dense_where_operators_are() -> None:
    x = rounded()
    assert torch.equal(plain_tangent(x), x.to_plain())
    dense = torch.ones(2)
    assert plain_tangent(dense) is dense
    whole = pair(2, 3)
    assert plain_tangent(whole) is whole
    mixed = Pair(x, torch.ones(2, 3))
    tangent = plain_tangent(mixed)
    assert type(tangent) is Pair and torch.equal(tangent.left, x.to_plain())
    assert tangent.right is not mixed.right and torch.equal(tangent.right, mixed.right)


LISTS: dict[str, Any] = {
    "the same": lambda w: [w, w],
    "rows in common": lambda w: [w[0:3], w[1:4]],
    "a whole and its rows": lambda w: [w, w[1:2]],
    "apart": lambda w: [w[:2], w[2:]],
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("make", LISTS.values(), ids=LISTS.keys())
def test_lists_of_what_is_one(make: Any, compiled: bool) -> None:
    def program(w: Any) -> None:
        torch._foreach_mul_(make(w), 2.0)
        torch._foreach_add_(make(w), [1.0, 3.0])

    w = Int8Weight.from_float(torch.ones(4, 2))
    dense = w.to_plain()
    with torch.no_grad():
        program(dense)
        (aot_compile(program) if compiled else program)(w)
    torch.testing.assert_close(w.to_plain(), dense)


@pytest.mark.parametrize(
    "make", [lambda: Int8Weight.from_float(torch.ones(2, 2)), lambda: TwoTensor(*torch.ones(2, 2))]
)
def test_writes_of_lists_are_counted(make: Any) -> None:
    w, dense = make(), torch.ones(2)
    for tensor in (w, dense):
        torch._foreach_mul_([tensor], 2.0)
        torch._foreach_add_([tensor, tensor.clone()], 1.0)
    assert w._version == dense._version == 2
    w.requires_grad_()
    y = (w * w).sum()
    with torch.no_grad():
        torch._foreach_mul_([w], 2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
