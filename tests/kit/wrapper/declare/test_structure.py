"""Fields that say where values are: what operators do to them, in eager mode and compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import WrapperTensor, aot_compile, structure
from subclass_aot.errors import DefinitionError, OperatorRuleError

MASK = torch.tensor([[True, False, True], [False, True, True]])


class Masked(WrapperTensor, fallback="each"):
    content: torch.Tensor
    mask: torch.Tensor = structure()


class Places(WrapperTensor):
    """The values of a sparse matrix, and where they are."""

    entries: torch.Tensor
    places: torch.Tensor = structure()

    def to_plain(self) -> torch.Tensor:
        return torch.zeros_like(self.entries).scatter(1, self.places, self.entries)

    def from_plain(self, plain: torch.Tensor) -> Places:
        return Places(plain.gather(1, self.places), self.places)


def masked() -> Masked:
    return Masked(torch.arange(6.0).view(2, 3) + 1, MASK.clone())


KEPT: dict[str, Any] = {
    "zeros_like": torch.zeros_like,
    "ones_like": torch.ones_like,
    "empty_like": torch.empty_like,
    "full_like": lambda x: torch.full_like(x, 2.0),
    "rand_like": torch.rand_like,
    "times zero": lambda x: x * 0,
    "of two": lambda x: x + x.sin(),
    "clone": torch.clone,
    "detach": torch.detach,
    "float64": lambda x: x.double(),
    "foreach": lambda x: torch._foreach_add([x, x], 1)[1],
    "two results": lambda x: torch.frexp(x)[0],
    "dense beside it": lambda x: torch.ones(2, 3) * x,
    "dense into it": lambda x: x.clone().copy_(torch.zeros(2, 3)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("program", KEPT.values(), ids=KEPT.keys())
def test_it_is_kept_where_values_are_computed(program: Any, compiled: bool) -> None:
    x = masked()
    result = (aot_compile(program) if compiled else program)(x)
    assert type(result) is Masked and result.mask.equal(MASK) and result.mask.dtype is torch.bool
    if program is not torch.detach:
        result.mask.logical_not_()
        assert x.mask.equal(MASK), "it is a copy"


@pytest.mark.parametrize("compiled", [False, True])
def test_writes_leave_it(compiled: bool) -> None:
    def program(x: Any) -> None:
        x.mul_(2)
        x.add_(x)
        torch._foreach_mul_([x], 3)
        x.fill_(1)
        x.zero_()

    x = masked()
    mask = x.mask
    (aot_compile(program) if compiled else program)(x)
    assert x.mask is mask and mask.equal(MASK) and mask._version == 0 and not x.content.any()


def test_views_and_copies_act_on_it() -> None:
    x = masked()
    assert x.t().mask.equal(MASK.t()) and x[1].mask.equal(MASK[1]) and x.view(-1).mask.equal(MASK.view(-1))
    assert x[:, 1:].mask._base is x.mask or x[:, 1:].mask.data_ptr() == x.mask.data_ptr() + 1
    y = Masked(torch.zeros(2, 3), ~MASK)
    x.copy_(y)
    assert x.mask.equal(~MASK) and not x.content.any()
    assert x.to("meta").mask.dtype is torch.bool and x.half().mask.dtype is torch.bool


def test_comparisons_look_at_it_and_numbers_do_not_come_of_it() -> None:
    x = masked()
    assert torch.equal(x, masked()) and not torch.equal(x, Masked(x.content, ~MASK))
    assert Masked(torch.tensor(2.5), torch.tensor(True)).item() == 2.5


@pytest.mark.parametrize("program", [torch.sum, lambda x: x.cumsum(0), lambda x: x.new_zeros(4), lambda x: x @ x.t()])
def test_of_other_operators_only_a_rule_knows(program: Any) -> None:
    with pytest.raises(OperatorRuleError, match="mask is structure, and what becomes of it nobody knows"):
        program(masked())


def test_rules_and_dense_meaning_go_first() -> None:
    class Sums(Masked, fallback="each"):
        pass

    @Sums.implements(torch.ops.aten.sum.default)
    def _(x: Any, *, dtype: Any = None) -> Any:
        return torch.where(x.mask, x.content, 0).sum(dtype=dtype)

    x = Sums(torch.ones(2, 3), MASK.clone())
    assert x.sum() == 4 and type(torch.zeros_like(x)) is Sums
    places = Places(torch.ones(2, 2), torch.tensor([[0, 1], [1, 0]]))
    assert type(torch.zeros_like(places)) is torch.Tensor
    assert torch.empty_like(places).places.equal(places.places) and places.double().places.dtype is torch.int64
    with pytest.raises(OperatorRuleError, match="places is structure, and what it would be in a tensor of"):
        places.new_zeros(2, 2)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
@pytest.mark.parametrize("cls", [Masked, Places])
def test_optimizers(cls: Any, optimizer: Any, foreach: bool, compiled: bool) -> None:
    def loss(weight: Any) -> Any:
        return (weight * weight).sin()

    entries, places = torch.rand(2, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([[0, 1, 2], [2, 0, 1]])
    kept = MASK.clone() if cls is Masked else places
    weight, dense = nn.Parameter(cls(entries.clone(), kept)), nn.Parameter(entries.clone())
    if cls is Places:
        dense = nn.Parameter(weight.detach().to_plain().clone())
    function = aot_compile(loss) if compiled else loss
    for parameter, run in ((weight, function), (dense, loss)):
        steps = optimizer([parameter], 0.1, foreach=foreach and cls is Masked)
        for _ in range(3):
            steps.zero_grad()
            run(parameter).backward(torch.ones_like(run(parameter)))
            steps.step()
    ended = weight.detach()
    torch.testing.assert_close(ended.content if cls is Masked else ended.to_plain(), dense.detach())
    assert (ended.mask if cls is Masked else ended.places).equal(MASK if cls is Masked else places)


def test_fields_of_several_and_absent_ones() -> None:
    class Several(WrapperTensor, fallback="each"):
        content: torch.Tensor
        masks: list[torch.Tensor] = structure()
        extra: torch.Tensor | None = structure()

    x = Several(torch.ones(2), [torch.tensor([True, False])])
    assert x.extra is None and (x * 0).masks[0].equal(x.masks[0]) and (x * 0).content.eq(0).all()
    x = Several(torch.ones(2), [], torch.tensor([1, 2]))
    assert torch.zeros_like(x).extra.equal(torch.tensor([1, 2]))


def test_it_is_for_tensor_fields() -> None:
    with pytest.raises(DefinitionError, match=r"note is context, and structure\(\) is for tensor fields"):

        class Wrong(WrapperTensor):
            content: torch.Tensor
            note: str = structure()

    with pytest.raises(TypeError, match="mask"):
        Masked(torch.ones(2))  # type: ignore[call-arg]
