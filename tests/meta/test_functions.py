from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.meta import Replaced, Stream


def doubled(stream: Stream, x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def test_a_function_is_replaced_above_autograd_and_wrappers() -> None:
    seen: list[Any] = []

    def rule(stream: Stream, *args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append((stream, args, kwargs))
        return args[0] * 3

    stream, wrapper = Stream(), TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
    with Replaced(stream, {torch.softmax: rule}):
        result = torch.softmax(wrapper, dim=0)
        torch.exp(wrapper)
    assert seen == [(stream, (wrapper,), {"dim": 0})]
    assert type(result) is TwoTensor and result.a.tolist() == [3, 3]


def test_rules_hold_inside_of_other_rules() -> None:
    def rule(stream: Stream, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1

    x = torch.zeros(2)
    with Replaced(Stream(), {torch.cos: rule, torch.sin: lambda stream, x: x + 10}):
        assert torch.cos(x).tolist() == [11, 11]
    assert torch.cos(x).tolist() == [1, 1]


def test_a_rule_leaves_a_call_as_it_is() -> None:
    with Replaced(Stream(), {torch.cos: lambda stream, x: NotImplemented if x.ndim else x + 1}):
        assert torch.cos(torch.zeros(1)).tolist() == [1] and torch.cos(torch.ones(())).item() == 2


def test_two_that_replace_the_same_are_equal() -> None:
    one, other = Replaced(Stream(), {torch.sin: doubled}), Replaced(Stream(), {torch.sin: doubled})
    assert one == other and hash(one) == hash(other)
    assert one != Replaced(Stream(), {torch.cos: doubled}) and one != Replaced(Stream())
