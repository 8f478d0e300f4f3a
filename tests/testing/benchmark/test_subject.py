"""Finding what is measured."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.errors import UnknownClassError
from subclass_aot.tensors import Int8Weight, TwoTensor
from subclass_aot.testing.benchmark.subject import arguments_of, find_maker
from tests.testing.benchmark import makers

HERE = makers.__name__


@pytest.mark.parametrize(
    ("target", "cls"),
    [
        ("subclass_aot.tensors:TwoTensor", "TwoTensor"),
        ("subclass_aot.tensors:Int8Weight", "Int8Weight"),
        ("torch.testing._internal.two_tensor:TwoTensor", "TwoTensor"),
        (f"{HERE}:slow", "Slow"),
    ],
)
def test_a_class_or_a_function_gives_new_tensors(target: str, cls: str) -> None:
    make = find_maker(target).make
    assert type(make()).__name__ == cls and make() is not make()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:make", "there is no no_such_module:make: No module named 'no_such_module'"),
        (f"{HERE}:absent", f"there is no {HERE}:absent"),
        (HERE, "is not of the form MODULE:FUNCTION"),
        (f"{HERE}:HERE", "there is no"),
        ("subclass_aot:__all__", "is a list; a function that gives a new tensor is wanted"),
        (f"{HERE}:Context", "TypeError: Context is no class of tensors."),
        (f"{HERE}:fails", "RuntimeError: not today."),
        (f"{HERE}:dense", "it gives a Tensor, which has no __tensor_flatten__"),
    ],
)
def test_a_broken_target_says_why(target: str, message: str) -> None:
    with pytest.raises(UnknownClassError) as raised:
        find_maker(target)
    assert message in str(raised.value)


def test_arguments_of_a_constructor_are_read_of_a_tensor() -> None:
    for tensor in (TwoTensor(torch.ones(2), torch.zeros(2)), makers.torchs_two_tensor()):
        held = arguments_of(tensor)
        assert held["a"] is tensor.a and held["b"] is tensor.b and len(held) == 2
    absent = arguments_of(Int8Weight.from_float(torch.randn(4, 4)))
    assert absent["zero_point"] is None
    tensor = makers.slow()
    del tensor.held
    with pytest.raises(LookupError, match="takes 'held', and the tensor has no attribute"):
        arguments_of(tensor)
