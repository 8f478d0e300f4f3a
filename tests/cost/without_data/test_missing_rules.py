"""All operators of a program without a shape rule, in one run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.errors import ShapeRuleError


@pytest.fixture
def operators() -> Iterator[Any]:
    library = torch.library.Library("missing_rules", "FRAGMENT")
    library.define("scaled(Tensor x, float by=2.0) -> Tensor")
    library.define("halves(Tensor x) -> (Tensor, Tensor)")
    library.define("parts(Tensor x) -> Tensor[]")
    library.define("scaled_backward(Tensor x) -> Tensor")
    for name in ("scaled", "halves", "parts", "scaled_backward"):
        library.impl(name, lambda x, *args: x, "CPU")
    yield torch.ops.missing_rules
    library._destroy()


class Model(nn.Module):
    """Calls several operators without a rule, one of them twice and one of them in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        operators = torch.ops.missing_rules

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> Any:
                return operators.scaled(x)

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> Any:
                return operators.scaled_backward(gradient)

        y: torch.Tensor = Scaled.apply(self.layer(x))
        with torch.no_grad():
            first, second = operators.halves(y)
            parts = operators.parts(operators.scaled(first))
        return y + parts[0] + second


@pytest.mark.usefixtures("operators")
def test_all_are_found_forward_and_backward_in_the_order_of_the_program() -> None:
    model = Model()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    missing = sa.missing_meta(model, torch.rand(2, 4))
    names = [str(rule.operator).split(".")[1] for rule in missing.rules]
    assert names == ["scaled", "halves", "parts", "scaled_backward"]
    assert len(missing) == 4
    assert not missing.stopped
    assert "operators.scaled(x)" in missing.rules[0].line
    assert "def _(x, by=2.0):" in str(missing)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())


def test_what_was_guessed_is_forgotten(operators: Any) -> None:
    assert len(sa.missing_meta(operators.scaled, torch.rand(3))) == 1
    with sa.meta(), pytest.raises(ShapeRuleError):
        operators.scaled(torch.empty(3))


def test_the_rules_that_it_prints_can_be_pasted(operators: Any) -> None:
    text = str(sa.missing_meta(operators.halves, torch.rand(3)))
    assert "subclass_aot.register_meta" in text
    exec(text.replace("...", "x.shape"), {"subclass_aot": sa, "torch": torch})
    missing = sa.missing_meta(operators.halves, torch.rand(3))
    assert (len(missing), str(missing)) == (0, "Every operator has a shape rule.")


def test_a_program_that_a_guess_leads_astray(operators: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        return operators.scaled(x) @ torch.rand(7, 7)

    missing = sa.missing_meta(program, torch.rand(2, 3))
    assert len(missing) == 1
    assert missing.stopped
    assert "perhaps since shapes were guessed" in str(missing)


def test_a_model_that_has_all(operators: Any) -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    assert not sa.missing_meta(model, torch.rand(2, 5, 16)).rules


def test_a_program_that_reads_values_goes_on(operators: Any) -> None:
    def program(x: torch.Tensor) -> Any:
        if not torch.isfinite(x).all():
            raise ValueError("not finite")
        return operators.scaled(x[x > 0])

    missing = sa.missing_meta(program, torch.rand(2, 3))
    assert (len(missing), missing.stopped) == (1, "")


def test_a_quantized_model(operators: Any) -> None:
    """The fields of wrappers have no data either, and those of arguments are taken as they are."""
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(sa.Int8Weight.from_float(layer.weight), requires_grad=False)
    pair = sa.TwoTensor(torch.rand(2, 4), torch.rand(2, 4))

    def program(x: torch.Tensor, pair: Any) -> Any:
        return operators.scaled(sa.to_meta(layer)(x).detach()) + (pair * 2).sum()

    missing = sa.missing_meta(program, torch.rand(2, 4), pair)
    assert ([str(rule.operator) for rule in missing.rules], missing.stopped) == (["missing_rules.scaled.default"], "")
