"""What each class is for: training, formats, units, counts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import linear

import subclass_aot as sa
from tests.authors.a_int4 import Int4
from tests.authors.b_nf4 import NF4Weight
from tests.authors.c_lora import Lora
from tests.authors.e_jagged import Jagged
from tests.authors.f_sparse import Sparse24
from tests.authors.g_units import Quantity, UnitError
from tests.authors.h_fields import Counting
from tests.authors.i_float8 import Float8Linear
from tests.authors.makes import MAKES, normal
from tests.authors.uses import dense

pytestmark = pytest.mark.long

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.05),
}
METRES, SECONDS = (1, 0, 0), (0, 0, 1)


def trained(parameters: Any, loss: Callable[[], torch.Tensor], optimizer: str, steps: int = 3) -> None:
    chosen = OPTIMIZERS[optimizer](list(parameters))
    for _ in range(steps):
        chosen.zero_grad()
        loss().backward()
        chosen.step()


def compiled_or_not(function: Any, compiled: bool) -> Any:
    return sa.aot_compile(function, fw_compiler="eager") if compiled else function


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("quantize", [Int4.quantize, NF4Weight.quantize], ids=["int4", "nf4"])
def test_the_rest_of_a_quantized_model_trains(quantize: Any, optimizer: str) -> None:
    first = nn.Sequential(nn.Linear(64, 8, bias=False), nn.ReLU(), nn.Linear(8, 4))
    first[0].weight = nn.Parameter(quantize(first[0].weight), requires_grad=False)
    second, third = copy.deepcopy(first), copy.deepcopy(first)
    third[0].weight = nn.Parameter(third[0].weight.to_plain(), requires_grad=False)
    for model, run in ((first, first), (second, sa.aot_compile(second, fw_compiler="eager")), (third, third)):
        trained(model[2].parameters(), lambda run=run: run(normal(5, 64)).square().mean(), optimizer)
    assert type(first[0].weight) is type(second[0].weight)
    for model in (second, third):
        torch.testing.assert_close(model[2].weight, first[2].weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_quantized_weight_itself_trains(optimizer: str) -> None:
    w = nn.Parameter(MAKES["a_int4"]())
    plain = nn.Parameter(w.detach().to_plain())
    for each in (w, plain):
        trained([each], lambda each=each: linear(normal(8, 64), each).square().mean(), optimizer, steps=2)
    assert type(w) is Int4 and type(w.grad) is torch.Tensor
    assert (w.detach().to_plain() - plain.detach()).abs().max() <= 1.1 * w.scale.max()  # each step rounds


@pytest.mark.parametrize("compiled", [False, True])
def test_low_rank_factors_train_and_the_base_stays(compiled: bool) -> None:
    base, a, b = normal(6, 5), normal(2, 5, seed=1), normal(6, 2, seed=2)
    layer = nn.Linear(5, 6, bias=False)
    layer.weight = nn.Parameter(Lora(base.clone(), a.clone(), b.clone()), requires_grad=False)
    sa.train_fields(layer, "weight", "a", "b")
    run = compiled_or_not(layer, compiled)
    trained(layer.parameters(), lambda: run(normal(3, 5)).square().mean(), "AdamW")
    a, b = nn.Parameter(a), nn.Parameter(b)
    trained([a, b], lambda: linear(normal(3, 5), base + b @ a).square().mean(), "AdamW")
    torch.testing.assert_close(layer.weight.a.detach(), a.detach())
    torch.testing.assert_close(layer.weight.b.detach(), b.detach())
    assert layer.weight.base.equal(base)


@pytest.mark.parametrize("compiled", [False, True])
def test_low_rank_factors_that_require_grad_are_given_to_the_constructor(compiled: bool) -> None:
    def loss(base: Any, a: Any, b: Any, x: Any) -> Any:
        return linear(x, Lora(base, a, b)).square().mean()

    def leaves() -> list[torch.Tensor]:
        return [normal(6, 5), normal(2, 5, seed=1).requires_grad_(), normal(6, 2, seed=2).requires_grad_()]

    (base, a, b), (_, c, d) = leaves(), leaves()
    compiled_or_not(loss, compiled)(base, a, b, normal(3, 5)).backward()
    linear(normal(3, 5), base + d @ c).square().mean().backward()
    torch.testing.assert_close((a.grad, b.grad), (c.grad, d.grad))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_masked_elements_train_as_dense_ones(optimizer: str, compiled: bool) -> None:
    p = nn.Parameter(MAKES["d_masked"]())
    plain, mask = nn.Parameter(p.values.clone()), p.mask.clone()
    run = compiled_or_not(lambda x: (x.exp() * x).sum(1).mean(), compiled)
    trained([p], lambda: run(p), optimizer)
    rows = mask.any(1).sum()
    trained([plain], lambda: (plain.exp() * plain * mask).sum() / rows, optimizer)
    torch.testing.assert_close(p.values[mask], plain.detach()[mask])
    assert p.mask.equal(mask)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin"])
def test_reductions_of_masked_elements_are_those_of_torch(name: str) -> None:
    x = MAKES["d_masked"]()
    for dims in ({}, {"dim": 1}, {"dim": 0, "keepdim": True}):
        found = getattr(x, name)(*dims.values())
        expected = getattr(torch.masked, name)(x.values, mask=x.mask, **dims)
        torch.testing.assert_close(found.values[found.mask], expected[found.mask])


def test_rows_of_other_lengths_need_no_other_compilation() -> None:
    step = sa.aot_compile(lambda x: (x * 2).sum(1), fw_compiler="eager", dynamic=True)
    for lengths in ((2, 3, 1), (4, 3, 2), (2, 2, 3, 4), (6, 5)):
        x = Jagged.of(*(normal(n, 4) for n in lengths))
        torch.testing.assert_close(step(x), (dense(x) * 2).sum(1))
    fixed = sa.aot_compile(lambda x: (x * 2).sum(1), fw_compiler="eager")
    for lengths in ((2, 3, 1), (3, 3, 1), (3, 2, 3), (3, 1, 1)):  # the longest is 3
        x = Jagged.of(*(normal(n, 4) for n in lengths))
        torch.testing.assert_close(fixed(x), (dense(x) * 2).sum(1))
    assert len(fixed.recompiles) <= 1


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_sparse_weight_keeps_its_pattern(optimizer: str, compiled: bool) -> None:
    w = nn.Parameter(Sparse24.prune(normal(8, 16)))
    places = w.places.clone()
    run = compiled_or_not(lambda x, w: linear(x, w), compiled)
    trained([w], lambda: run(normal(8, 16), w).square().mean(), optimizer)
    plain = nn.Parameter(dense(Sparse24.prune(normal(8, 16))))
    mask = plain.detach() != 0
    trained([plain], lambda: linear(normal(8, 16), plain * mask).square().mean(), optimizer)
    torch.testing.assert_close(w.detach().to_plain(), plain.detach() * mask)
    assert w.places.equal(places)


@pytest.mark.parametrize("compiled", [False, True])
def test_units(compiled: bool) -> None:
    length, time = Quantity(normal(3).abs() + 1, METRES), Quantity(normal(3).abs() + 2, SECONDS)
    assert compiled_or_not(torch.div, compiled)(length, time).unit == (1, 0, -1)
    assert compiled_or_not(lambda x: x**2, compiled)(length).unit == (2, 0, 0)
    with pytest.raises(UnitError, match=r"aten\.add\.Tensor"):
        compiled_or_not(torch.add, compiled)(length, time)
    with pytest.raises(UnitError, match=r"aten\.exp\.default"):
        compiled_or_not(torch.exp, compiled)(length)
    length, time = length.requires_grad_(), time.requires_grad_()
    compiled_or_not(lambda x, t: (x / t).sum(), compiled)(length, time).backward()
    assert (length.grad.unit, time.grad.unit) == ((0, 0, -1), (1, 0, -2))
    torch.testing.assert_close(length.grad.number, 1 / time.number)


def test_another_unit_compiles_again() -> None:
    step = sa.aot_compile(lambda x: x * x, fw_compiler="eager")
    units = [step(Quantity(torch.ones(2), unit)).unit for unit in (METRES, SECONDS, METRES)]
    assert units == [(2, 0, 0), (0, 0, 2), (2, 0, 0)] and len(step.recompiles) == 1


def test_a_quantity_trains() -> None:
    p, plain = nn.Parameter(Quantity(normal(3), METRES)), nn.Parameter(normal(3))
    for each in (p, plain):
        trained([each], lambda each=each: (each * each).sum(), "SGD")
    torch.testing.assert_close(p.number, plain.detach())
    assert p.unit == METRES


def test_operators_are_counted() -> None:
    def program(c: Any) -> Any:
        return (c * 2 + 1).sum()

    c = Counting(normal(3)).requires_grad_()
    Counting.counts.clear()
    program(c).backward()
    assert [Counting.counts[f"aten.{name}"] for name in ("mul.Tensor", "add.Tensor", "sum.default")] == [2, 1, 1]
    step = sa.aot_compile(program, fw_compiler="eager")
    step(c)
    Counting.counts.clear()
    step(c)
    assert not Counting.counts["aten.mul.Tensor"]  # a trace has met it, and a compiled call meets dense tensors


def test_delayed_scaling_trains() -> None:
    first = Float8Linear(16, 8)
    second, dense_layer = copy.deepcopy(first), nn.Linear(16, 8, bias=False)
    dense_layer.weight = nn.Parameter(first.weight.detach().clone())
    for layer, run in ((first, first), (second, sa.aot_compile(second, fw_compiler="eager")), (dense_layer,) * 2):
        trained(layer.parameters(), lambda run=run: run(normal(4, 16) / 3).square().mean(), "SGD")
    torch.testing.assert_close(second.weight, first.weight)
    assert second.amax.equal(first.amax) and first.amax == (normal(4, 16) / 3).abs().max()
    assert (first.weight - dense_layer.weight).abs().max() < 0.02
