"""Whole classes whose rules are for sets: what they compute, train and compile to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import OperatorRuleError
from subclass_aot.testing import check_compiled
from tests.kit.wrapper.with_sets import Jagged, Masked, Quantity, UnitError

METRES, SECONDS = (("m", 1),), (("s", 1),)


def masked(seed: int = 0) -> Masked:
    generator = torch.Generator().manual_seed(seed)
    return Masked(torch.rand(3, 4, generator=generator) + 0.5, torch.rand(3, 4, generator=generator) > 0.4)


def jagged(seed: int = 0) -> Jagged:
    generator = torch.Generator().manual_seed(seed)
    return Jagged.of(*(torch.randn(n, 4, generator=generator) for n in (2, 3, 1)))


def assert_masked(actual: Any, content: torch.Tensor, mask: torch.Tensor) -> None:
    assert type(actual) is Masked and torch.equal(actual.mask, mask)
    torch.testing.assert_close(actual.content[mask], content[mask])


def test_masked_pointwise() -> None:
    x, y = masked(), masked(1)
    assert_masked(x.sin() * 2 + y, x.content.sin() * 2 + y.content, x.mask & y.mask)
    assert_masked(x > 1, x.content > 1, x.mask)
    assert_masked(torch.where(x > 1, x, 0.0), x.content.where(x.content > 1, 0.0), x.mask)
    assert_masked(x * torch.ones(2, 3, 4), x.content.expand(2, 3, 4), x.mask.expand(2, 3, 4))
    assert (x * 1).mask is not x.mask and x.clone().mask is not x.mask


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("args", [(), (1,), (0, True)], ids=str)
def test_masked_reductions(name: str, args: Any) -> None:
    x = masked()
    dims = {} if not args else {"dim": args[0], "keepdim": len(args) > 1}
    expected = getattr(torch.masked, name)(x.content, mask=x.mask, **dims)
    assert_masked(getattr(x, name)(*args), expected, x.mask.any(*args) if args else x.mask.any())


def test_masked_reductions_without_neutral_element_are_refused() -> None:
    with pytest.raises(
        OperatorRuleError, match=r"No rule for aten\.median\.default.*(\n.*)*with_sets\.py:\d+\) declined"
    ):
        masked().median()


def train(optimizer: torch.optim.Optimizer, p: Any, loss: Callable[[Any], Any], compiled: bool = False) -> None:
    run = sa.aot_compile(loss, fw_compiler="eager") if compiled else loss
    for _ in range(3):
        optimizer.zero_grad()
        run(p).backward()
        optimizer.step()


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD([p], 0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda p: torch.optim.AdamW([p], 0.1, amsgrad=True),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_masked_trains_as_dense_where_the_mask_is(name: str, compiled: bool) -> None:
    x = masked()
    dense = x.content.clone().requires_grad_()
    p, mask = torch.nn.Parameter(x), x.mask.clone()
    train(OPTIMIZERS[name](p), p, lambda p: (p * p).sum(), compiled)
    train(OPTIMIZERS[name](dense), dense, lambda p: (p * p)[mask].sum())
    assert_masked(p.detach(), dense.detach(), mask)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("make", [masked, jagged])
def test_a_compiled_training_step_is_eager(name: str, make: Callable[[], Any]) -> None:
    p, q = torch.nn.Parameter(make()), torch.nn.Parameter(make())
    train(OPTIMIZERS[name](q), q, lambda q: (q * q).sum(1).sum())
    optimizer = OPTIMIZERS[name](p)

    def step() -> None:
        optimizer.zero_grad()
        (p * p).sum(1).sum().backward()
        optimizer.step()

    compiled = sa.aot_compile(step, fw_compiler="eager")
    for _ in range(3):
        compiled()
    for field in p.__tensor_flatten__()[0]:
        torch.testing.assert_close(getattr(p, field), getattr(q, field))


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_jagged_trains_as_dense_rows(name: str, compiled: bool) -> None:
    x = jagged()
    dense = x.flat.clone().requires_grad_()
    p = torch.nn.Parameter(x)
    train(OPTIMIZERS[name](p), p, lambda p: (p * p).sum(1).sum(), compiled)
    train(OPTIMIZERS[name](dense), dense, lambda p: (p * p).sum())
    torch.testing.assert_close(p.flat, dense.detach())
    assert type(p.grad) is Jagged and torch.equal(p.offsets, jagged().offsets)


def test_jagged_computes_as_its_padded_rows() -> None:
    x, y = jagged(), jagged(1)
    torch.testing.assert_close((x.sin() * y).to_plain(), x.to_plain().sin() * y.to_plain())
    torch.testing.assert_close((x * x).sum(1), (x.to_plain() ** 2).sum(1))
    torch.testing.assert_close(x.amax(2), x.to_plain().amax(2))
    assert torch.zeros_like(x).offsets.equal(x.offsets) and not torch.zeros_like(x).flat.any()


def test_units() -> None:
    a, b = Quantity(torch.rand(3) + 1, METRES), Quantity(torch.rand(3) + 1, SECONDS)
    speed = a / b
    assert speed.unit == (("m", 1), ("s", -1)) and torch.equal(speed.number, a.number / b.number)
    assert (speed * b).unit == METRES and (a * a).pow(2).unit == (("m", 4),)
    assert a.sum().unit == METRES and torch.cat([a, a]).unit == METRES and (a / a).exp().unit == ()
    assert (a[None] @ b[:, None]).unit == (("m", 1), ("s", 1))
    for refused in (lambda: a + b, lambda: a.exp(), lambda: a.add_(b), lambda: torch.cat([a, b]), lambda: a.prod()):
        with pytest.raises(UnitError):
            refused()
    with pytest.raises(OperatorRuleError, match=r"No rule for aten\.mul_\.Tensor(.*\n)*.*`copy_` cannot write"):
        a.mul_(b)


def test_units_train() -> None:
    p = torch.nn.Parameter(Quantity(torch.ones(3), METRES))
    dense = torch.ones(3, requires_grad=True)
    for each in (p, dense):
        train(torch.optim.SGD([each], 0.1, momentum=0.9), each, lambda p: (p * p).sum())
    torch.testing.assert_close(p.number, dense.detach())
    assert p.unit == METRES


def summed(x: Any) -> Any:
    return (x.exp() * x).sum()


def stepped(x: Any) -> Any:
    x.mul_(0.5).addcmul_(x, x)
    return x


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "masked-sin": (lambda x: x.sin() * 2, masked),
    "masked-gradient": (summed, lambda: masked().requires_grad_()),
    "masked-mean-of-views": (lambda x: x.t().exp().mean(0), lambda: masked().requires_grad_()),
    "masked-in-place": (stepped, masked),
    "jagged-rows": (lambda x: (x.sin() * x).sum(1), lambda: jagged().requires_grad_()),
    "jagged-in-place": (stepped, jagged),
    "quantity": (lambda x: (x * x / (x + x)).sum(), lambda: Quantity(torch.rand(3) + 1, METRES).requires_grad_()),
    "quantity-in-place": (lambda x: x.mul_(2).add_(x), lambda: Quantity(torch.rand(3) + 1, METRES)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_is_eager(name: str) -> None:
    program, make = PROGRAMS[name]
    check_compiled(program, [make()])


def test_a_unit_that_does_not_fit_is_an_error_in_a_compiled_program_too() -> None:
    a, b = Quantity(torch.rand(3) + 1, METRES), Quantity(torch.rand(3) + 1, SECONDS)
    with pytest.raises(UnitError):
        sa.aot_compile(lambda a, b: a + b, fw_compiler="eager")(a, b)
