"""63 everyday uses of each class."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from tests.authors.makes import MAKES
from tests.authors.uses import USES

REFUSED: dict[str, tuple[type[Exception], str]] = {
    "numpy": (RuntimeError, r"\.numpy\(\) is not supported for tensor subclasses"),
    "tolist": (RuntimeError, r"\.tolist\(\) is not supported for tensor subclasses"),
}
"""What torch refuses for every subclass, before the class is asked."""

if not torch.accelerator.is_available():
    REFUSED["pin_memory"] = (RuntimeError, "Cannot access accelerator device when none is available")

NOT_DENSE_EITHER: dict[tuple[str, str], tuple[type[Exception], str]] = {
    ("i_float8", "pickle"): (AttributeError, "has no attribute 'dtype'")
}
"""What torch cannot do with the dense tensors that a class is made of."""


def test_there_are_as_many_uses_as_the_review_counts() -> None:
    assert len(USES) == 63


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", MAKES)
def test_use(name: str, use: str) -> None:
    refusal = REFUSED.get(use) or NOT_DENSE_EITHER.get((name, use))
    if refusal is None:
        USES[use](MAKES[name])
        return
    with pytest.raises(refusal[0], match=refusal[1]):
        USES[use](MAKES[name])


def test_torch_refuses_to_read_a_pickle_of_dense_float8() -> None:
    bits: Any = torch.zeros(2).to(torch.float8_e4m3fn)
    with pytest.raises(AttributeError, match="has no attribute 'dtype'"):
        pickle.loads(pickle.dumps(bits))


def test_torch_pins_no_dense_tensor_without_accelerator() -> None:
    if not torch.accelerator.is_available():
        with pytest.raises(RuntimeError, match="Cannot access accelerator device"):
            torch.ones(2).pin_memory()
