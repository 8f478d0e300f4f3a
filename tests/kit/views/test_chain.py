"""Chains of operators, against the operators themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.kit.views import Chain, FunctionStep, JaggedStep, RaggedSize, Step, SymintAt

aten: Any = torch.ops.aten


def base() -> torch.Tensor:
    return torch.arange(12.0).view(3, 4).requires_grad_()


@pytest.mark.parametrize(
    ("steps", "view"),
    [
        ((), lambda x: x),
        ((Step(aten.slice.Tensor, (0, 1)), Step(aten.t.default)), lambda x: x[1:].t()),
        ((Step(aten.split.Tensor, (2,), (("dim", 1),), result=1),), lambda x: x[:, 2:]),
        ((Step.of(aten.unsqueeze.default, (), {"dim": 0}),), lambda x: x[None]),
        ((FunctionStep(lambda x, number: x[1]), Step(aten.view.default, ((2, 2),))), lambda x: x[1].view(2, 2)),
        ((Step(lambda n, x, m: x[n:m], (1, 2), tensor=1),), lambda x: x[1:2]),
    ],
)
def test_a_chain_makes_the_view(steps: Any, view: Any) -> None:
    x, chain = base(), Chain().then(*steps)
    assert chain == Chain(steps) and chain(x).equal(view(x)) and chain.again(x).equal(view(x))
    assert chain(x)._base is view(x)._base and chain(x).requires_grad
    assert chain.without_history()(x).equal(view(x)) and not chain.without_history()(x).requires_grad


def test_numbers_of_a_call_take_their_places() -> None:
    chain = Chain((Step(aten.view.default, ([SymintAt(1), SymintAt(0)],)), Step(aten.slice.Tensor, (0, SymintAt(2)))))
    assert chain(base(), 6, 2, 1).equal(base().view(2, 6)[1:])


def test_the_ragged_size_is_that_of_the_tensor() -> None:
    step = JaggedStep.if_ragged(Step(aten.view.default, ((2, RaggedSize(), SymintAt(0), 1),)))
    for lengths in ([1, 2], [3, 1]):
        x = torch.nested.nested_tensor([torch.ones(n, 3) for n in lengths], layout=torch.jagged)
        assert Chain((step,))(x, 3).shape == (*x.shape, 1)
    plain = Step(aten.t.default)
    assert JaggedStep.if_ragged(plain) is plain


def test_each_argument_may_be_replaced() -> None:
    seen: list[object] = []

    def number(value: object) -> Any:
        seen.append(value)
        return 2 if value == 1 else value

    chain = Chain((Step(aten.slice.Tensor, (0, 1)), Step(aten.sum.dim_IntList, ([0, 1],), (("dtype", None),))))
    assert Chain(chain.steps[:1]).again(base(), number).equal(base()[2:]) and seen == [0, 1]
    steps = (Step(aten.expand.default, ((1, 3, 4),), (("implicit", False),)), FunctionStep(lambda x, n: x[:, n(1) :]))
    assert Chain(steps).again(base(), number).shape == (2, 1, 4)
    assert seen[2:] == [1, 3, 4, False, 1]
