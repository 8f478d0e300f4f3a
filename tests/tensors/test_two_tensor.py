"""Two tensors of one shape: each operator is applied to both."""

from __future__ import annotations

import copy

import torch
from torch.nn import functional as F

from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.tensors import Int8Weight, TwoTensor
from tests.tensors.checks import verdicts


def test_contract() -> None:
    """Torch's own export fails on a parameter of several tensors, as it does on torch's own class of this name."""
    assert verdicts(lambda: TwoTensor(torch.randn(4, 6), torch.randn(4, 6))) == {
        (32, "torch.compile: unused result"),
        (42, "export"),
    }


def test_two_tensor_in_ten_lines() -> None:
    x = TwoTensor(torch.zeros(2, 3), torch.ones(2, 3))
    y = (x + 1).t() @ x
    assert type(y) is TwoTensor and y.a.sum() == 0 and y.b.unique().item() == 4


def test_two_tensor_of_int8_weights() -> None:
    one, two = Int8Weight.from_float(torch.randn(3, 4)), Int8Weight.from_float(torch.randn(3, 4))
    nested, x = TwoTensor(one, two), torch.randn(2, 4, requires_grad=True)
    result = F.linear(x, nested)
    torch.testing.assert_close(result.b.detach(), F.linear(x, two).detach())
    assert type(nested.t().a) is Int8Weight and type(nested.view(12).b) is Int8Weight
    result.sum().backward()
    torch.testing.assert_close(x.grad.a, one.to_plain().sum(0).expand(2, 4))
    again = copy.deepcopy(nested)
    assert type(again.a) is Int8Weight and again.a.codes is not one.codes
    compiled = torch.compile(F.linear, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x.detach(), nested).a, result.a.detach())
    torch._dynamo.reset()


def test_the_class_is_generated() -> None:
    assert issubclass(TwoTensor, WrapperTensor) and TwoTensor.__wrapper_attributes__ is not None
