"""What `check_subclass` says of each class: nothing is wrong in silence, and little is not offered."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from subclass_aot.testing import check_subclass
from tests.authors.makes import CHECKED, MAKES

pytestmark = pytest.mark.long

EXPECTED: dict[str, Mapping[tuple[int, str], str]] = {
    "d_masked": {(27, "other forms"): "of nothing, no mean counts"},
    "g_units": {(28, "unused result of a function"): "zeros that autograd makes have no unit"},
}

UNUSED = "torch.compile: unused result"
"""Torch guesses the class of a gradient that does not come."""

OTHER_SIZES = {"new_zeros", "FSDP shards"}
"""Fields that do not say what they would be in a tensor of another size."""

OF_ANOTHER_UNIT = (
    "linear", "linear with bias", "bias", "embedding of a product", "x * y", "x @ y", "y - x", "y @ x",
)  # fmt: skip
"""Products and sums of which a dense operand would have a gradient with a unit."""

NOT_OFFERED = {
    "c_lora": OTHER_SIZES,
    "d_masked": {*OTHER_SIZES, "export", UNUSED},
    "e_jagged": {*OTHER_SIZES, UNUSED},
    "f_sparse": OTHER_SIZES,
    "b_nf4": {"export"},
    "i_float8": set(),
    "g_units": {
        *("x + dense", "dense - x", "x.add_(dense)", "cat with dense", "where", "x.mul_(x)"),  # the unit differs
        *("x.add_(dense) in inference mode", "x.sub_(dense, alpha=2)", "x.clamp_(max=0.25)", "dense.copy_(x)"),
        *("gradient of linear", "gradient of transposed", "checkpoint"),  # the sine of a length
        *("x.softmax(-1)", "linear with bias", "random", "clip_grad_norm_"),  # no unit is right
        *("SGD(foreach=True)", "AdamW", "AdamW(foreach=True)", "AdamW(fused=True)"),
        *("x.diagonal()", "x.unfold(0, 2, 1)"),
        *("where in inference mode", "x.softmax(-1) in inference mode", "linear with bias in inference mode"),
        *(f"other operand of {each}" for each in OF_ANOTHER_UNIT),
        "torch.compile: (x * x).sum()",  # the unit of the gradient is another one
    },
    "h_fields": OTHER_SIZES,
    "h_counting": {UNUSED},
}


@pytest.mark.parametrize("name", MAKES)
def test_nothing_is_wrong_in_silence(name: str) -> None:
    make, readings = CHECKED.get(name, (MAKES[name], None))
    report = check_subclass(make, readings=readings, expected=EXPECTED.get(name, {}))
    report.raise_if_broken()
    assert {finding.clause.name for finding in report.not_offered} == set(NOT_OFFERED.get(name, ()))
