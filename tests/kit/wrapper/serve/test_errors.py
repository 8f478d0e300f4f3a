"""What is said of an operator without a rule."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch

from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper.serve.errors import no_rule
from tests.kit.wrapper.classes import fresh

aten = torch.ops.aten


def test_error_without_a_rule() -> None:
    x = fresh()(torch.zeros(2))
    with pytest.raises(OperatorRuleError) as error:
        torch.add(x, torch.ones(2), alpha=2)  # the user's line
    text = str(error.value)
    assert text.startswith("No rule for aten.add.Tensor on Fresh.\n")
    assert "schema:      aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor" in text
    assert "called with: (Fresh, Tensor, alpha=2)" in text
    assert "test_errors.py" in text and "torch.add(x, torch.ones(2), alpha=2)  # the user's line" in text
    assert "no fallback (fallback=...) and no to_plain method" in text
    assert (
        "    @Fresh.implements(torch.ops.aten.add.Tensor)\n    def _(self, other, *, alpha=1):\n        ...\n" in text
    )
    with pytest.raises(NotImplementedError):
        x.cumsum(0)


def test_a_rule_that_is_missing_for_a_structure_of_tensors_names_what_is_in_it() -> None:
    x = fresh()(torch.zeros(2))
    error = no_rule(type(x), aten.cat.default, ([x, torch.ones(1), [3, "x" * 99]],), {})
    assert f"called with: ([Fresh, Tensor, [3, '{'x' * 39}]])\n" in str(error)  # a long value is cut


@pytest.mark.parametrize("func", [aten.add.Tensor, aten.clamp.default, torch.ops.higher_order.cond], ids=str)
def test_a_stub_becomes_the_rule_as_it_is_pasted(func: Any) -> None:
    cls = fresh()
    _, _, pasted = str(no_rule(cls, func, (), {})).partition("Write one:\n\n")
    exec(textwrap.dedent(pasted).replace("...", "return torch.tensor([7.0])"), {"Fresh": cls, "torch": torch})
    assert cls.__torch_dispatch__(func, (cls,), (cls(torch.ones(1)), 1)) == 7
