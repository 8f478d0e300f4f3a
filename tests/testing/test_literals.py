"""Values are written as Python that gives them back, or by a name that says where they come from."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.testing.literals import Names


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [1, True, 1.5, -0.0, float("-inf"), 2j, "it's", b"x", None, ..., range(3), (), (1,), [1, (2, "a")], {"k": [None]},
     slice(1, None), torch.float16, torch.strided, torch.channels_last, torch.device("meta"), Colour.RED],
    ids=repr,
)  # fmt: skip
def test_a_literal_gives_the_value_back(value: Any) -> None:
    names = Names()
    again = eval(names.literal(value), {"torch": torch, **names.values})
    assert again == value and type(again) is type(value)


def test_not_a_number() -> None:
    assert math.isnan(eval(Names().literal(math.nan)))


def test_one_name_for_an_object() -> None:
    names, first, second = Names(), object(), object()
    assert names.literal([first, second, first]) == "[object, object_2, object]"
    assert names.values == {"object": first, "object_2": second}


def test_no_value_takes_the_name_of_torch() -> None:
    names = Names()
    assert names.const(object(), "torch") == "torch_2"


def test_what_a_text_mentions_is_imported() -> None:
    names = Names()
    names.const(TwoTensor, "TwoTensor")
    names.const(torch.Tensor.sin, "unused")
    names.const(Names, "Texts")
    names.const(torch.ones(2, 3), "values")
    assert names.imports("TwoTensor(Texts, values)") == [
        "import torch",
        "from subclass_aot.testing.literals import Names as Texts",
        "from subclass_aot import TwoTensor",
        "# values: yours, a tensor [2, 3]",
    ]
