"""What is printed for a recipe is as short as it can be, and has all that tensors share."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.testing.inputs import Capture
from subclass_aot.testing.literals import Names
from subclass_aot.testing.printer import LITERAL, Printer, maker, non_leaf


def printed(*tensors: Any, values: bool = False) -> tuple[list[str], Names, list[str]]:
    names = Names()
    printer = Printer(names)
    printer.print(Capture(values=values).all(tensors))
    return printer.lines, names, printer.roots


def test_a_packed_tensor_is_one_call() -> None:
    assert printed(torch.ones(2, 3), torch.ones(2, dtype=torch.int64))[0] == [
        "x0 = torch.rand((2, 3))",
        "x1 = torch.randint(0, 2, (2,), dtype=torch.int64)",
    ]


def test_memory_that_is_shared_has_a_name() -> None:
    x = torch.ones(2, 3)
    assert printed(x, x.t())[0] == [
        "s0 = torch.rand((6,))",
        "x0 = s0.as_strided((2, 3), (3, 1), 0)",
        "x1 = s0.as_strided((3, 2), (1, 3), 0)",
    ]


def test_a_tensor_in_two_places_has_a_name() -> None:
    x = torch.ones(2)
    assert printed(TwoTensor(x, x))[0] == ["t1 = torch.rand((2,))", "x0 = TwoTensor(a=t1, b=t1)"]


def test_a_view_is_made_of_its_base() -> None:
    base = torch.ones(4).requires_grad_() * 2
    lines, _, roots = printed(base[1:])
    assert lines[-1] == "x0 = x0_base.as_strided((3,), (1,), 1)" and roots == ["x0_base_root"]


def test_history() -> None:
    lines, _, roots = printed(torch.ones(2).requires_grad_(), torch.nn.Parameter(torch.ones(2), requires_grad=False))
    assert lines == [
        "x0 = torch.rand((2,)).requires_grad_()",
        "x1 = torch.nn.Parameter(torch.rand((2,)), requires_grad=False)",
    ]
    assert roots == ["x0"]


def test_few_values_are_printed_and_many_have_a_name() -> None:
    lines, names, _ = printed(torch.tensor([1.5, torch.inf]), torch.arange(LITERAL + 1), values=True)
    assert lines == [
        "x0 = torch.tensor([1.5, float('inf')], dtype=torch.float32)",
        "x1 = values.clone()",
    ]
    assert torch.equal(names.values["values"], torch.arange(LITERAL + 1))


def test_made_tensors_do_not_depend_on_the_state_of_the_caller() -> None:
    make = maker(Capture(values=False).all([torch.ones(3)]))
    with torch.inference_mode():
        (first,), _ = make()
    torch.rand(1)
    (second,), _ = make()
    assert torch.equal(first, second) and not first.is_inference()


def test_a_non_leaf_on_the_memory_of_a_leaf() -> None:
    root = torch.ones(2, requires_grad=True)
    computed = non_leaf(root)
    assert computed.grad_fn is not None and computed.data_ptr() == root.data_ptr()
