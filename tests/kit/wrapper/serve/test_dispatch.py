"""What serves an operator, and on which classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import Int8Weight, aot_compile
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from tests.kit.wrapper.classes import fresh

aten = torch.ops.aten


class Stranger(WrapperTensor, fallback="each"):
    content: torch.Tensor


def test_unknown_wrapper_classes_are_asked_themselves() -> None:
    cls = fresh(fallback="each")
    x = cls(torch.zeros(2))
    for other in (Stranger(torch.ones(2)), ForeignTensor(torch.ones(2), torch.ones(2))):
        assert cls.__torch_dispatch__(aten.add.Tensor, (cls, type(other)), (x, other)) is NotImplemented
    with pytest.raises(TypeError):
        x + Stranger(torch.ones(2))


def test_accepted_and_leaf_like_classes_are_known() -> None:
    class Knows(WrapperTensor, fallback="each"):
        accepts = (Stranger,)
        payload: torch.Tensor

    x = Knows(torch.zeros(2))
    result = x + Stranger(torch.ones(2))
    assert type(result) is Knows and type(result.payload) is Stranger
    assert type(Stranger(torch.ones(2)) + x) is Knows
    assert type(x + torch.nn.Parameter(torch.ones(2))) is Knows


def test_higher_order_operators() -> None:
    cls = fresh()
    op = torch.ops.higher_order.cond
    with pytest.raises(OperatorRuleError, match=r"@Fresh\.implements\(torch\.ops\.higher_order\.cond\)"):
        cls.__torch_dispatch__(op, (cls,), (True, torch.sin, torch.cos, (cls(torch.zeros(2)),)))
    cls.implements(op)(lambda *args: 7)
    assert cls.__torch_dispatch__(op, (cls,), (True, torch.sin, torch.cos, (cls(torch.zeros(2)),))) == 7


def test_a_rule_in_an_each_class_goes_before_the_fallback() -> None:
    cls = fresh(fallback="each")
    cls.implements(aten.mm.default)(lambda a, b: torch.tensor([[5.0]]))
    x = cls(torch.zeros(1, 1))
    assert (x @ x).item() == 5
    with torch.inference_mode():
        assert torch.nn.functional.linear(x, x).item() == 5  # taken apart, so that the same rule is met


def test_not_implemented_passes_on() -> None:
    base = fresh(fallback="each")
    derived = type("Derived", (base,), {})
    base.implements(aten.neg.default)(lambda x: torch.tensor([1.0]) if x.dim() == 1 else NotImplemented)
    derived.implements(aten.neg.default)(lambda x: torch.tensor([[2.0]]) if x.dim() == 2 else NotImplemented)
    assert derived(torch.zeros(1)).neg().item() == 1
    assert derived(torch.zeros(1, 1)).neg().item() == 2
    assert type(derived(torch.zeros(1, 1, 1)).neg()) is derived


def test_views_in_inference_mode_are_what_views_of_dense_tensors_are() -> None:
    cls = fresh(fallback="each")
    x, dense = cls(torch.zeros(2, 2)), torch.zeros(2, 2)
    with torch.inference_mode():
        made = cls(torch.zeros(2, 2))
        for function in (torch.t, torch.neg):
            assert function(x).is_inference() == function(dense).is_inference()
        assert made.t().is_inference()


def test_a_handler_is_found_once() -> None:
    cls = fresh(fallback="each")
    x = cls(torch.zeros(2))
    x.neg()
    handler = cls._handlers[aten.neg.default]
    x.neg()
    assert cls._handlers[aten.neg.default] is handler
    cls.implements(aten.abs.default)(lambda self: self)
    assert aten.neg.default not in cls._handlers  # a rule may serve what the operator is made of


class Polar(WrapperTensor):
    """A complex tensor, whose product is that with the conjugate."""

    value: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.value


class Conjugate(WrapperTensor):
    """What it stands for has the conjugate bit."""

    value: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.value.conj()


class Imaginary(WrapperTensor):
    """What it stands for has the negative bit, and is real."""

    value: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.value, dtype=self.value.dtype.to_real(), stride=None, size=self.value.shape)

    def to_plain(self) -> torch.Tensor:
        return self.value.conj().imag


@Polar.implements(aten.mul.Tensor)
def _(a: Any, b: Any) -> Any:
    return a.value.conj() * b.value if isinstance(b, Polar) else NotImplemented


@pytest.mark.parametrize("compiled", [False, True])
def test_lazy_bits_mean_what_they_say_below_a_class(compiled: bool) -> None:
    def ran(program: Callable[..., Any], *args: Any) -> Any:
        return aot_compile(program, fw_compiler="eager")(*args) if compiled else program(*args)

    value, x = torch.randn(2, 3, 3, dtype=torch.complex64)
    torch.testing.assert_close(ran(torch.mul, Polar(value), Polar(x)), (value.conj() * x).resolve_conj())
    torch.testing.assert_close(ran(torch.add, Conjugate(value), x), value.conj() + x)
    torch.testing.assert_close(ran(torch.add, Imaginary(value), x), x - value.imag)
    torch.testing.assert_close(ran(lambda t: t.conj() * 2, Polar(value)), value.conj() * 2)


def test_gradient_of_a_complex_class_is_that_of_dense() -> None:
    value = torch.randn(3, 3, dtype=torch.complex64)
    x, dense = Conjugate(value).requires_grad_(), value.conj().resolve_conj().requires_grad_()
    for each in (x, dense):
        (each * 2j * each).sum().abs().backward()
    torch.testing.assert_close(x.grad, dense.grad)


def test_dynamo_does_not_compile_what_operators_are_made_of() -> None:
    """Beside a compiled graph operators run in eager mode, and their frames are none of the program."""

    @torch.compiler.disable(recursive=False)
    def beside(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, weight)

    def backend(graph_module: torch.fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> Any:
        graphs.append(graph_module)
        return graph_module.forward

    torch._dynamo.reset()
    graphs: list[torch.fx.GraphModule] = []
    weight, x = Int8Weight.from_float(torch.randn(3, 4)), torch.randn(2, 4)
    compiled = torch.compile(lambda x, weight: beside(x, weight) + 1, backend=backend)
    torch.testing.assert_close(compiled(x, weight), beside(x, weight) + 1)
    assert len(graphs) == 1 and "add" in graphs[0].code
    torch._dynamo.reset()
