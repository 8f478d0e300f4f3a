"""63 everyday uses of each class."""

from __future__ import annotations

import pytest
import torch

from tests.authors.makes import MAKES
from tests.authors.uses import USES

pytestmark = pytest.mark.long

REFUSED: dict[str, tuple[type[Exception], str]] = {
    "numpy": (RuntimeError, r"\.numpy\(\) is not supported for tensor subclasses"),
    "tolist": (RuntimeError, r"\.tolist\(\) is not supported for tensor subclasses"),
}
"""What torch refuses for every subclass, before the class is asked."""

if not torch.accelerator.is_available():
    REFUSED["pin_memory"] = (RuntimeError, "Cannot access accelerator device when none is available")


def test_there_are_as_many_uses_as_the_review_counts() -> None:
    assert len(USES) == 63


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", MAKES)
def test_use(name: str, use: str) -> None:
    refusal = REFUSED.get(use)
    if refusal is None:
        USES[use](MAKES[name])
        return
    with pytest.raises(refusal[0], match=refusal[1]):
        USES[use](MAKES[name])


def test_torch_pins_no_dense_tensor_without_accelerator() -> None:
    if not torch.accelerator.is_available():
        with pytest.raises(RuntimeError, match="Cannot access accelerator device"):
            torch.ones(2).pin_memory()
