"""Gradients through `to_plain` and through the constructor, against those of the dense computation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, WrapperTensor, aot_compile, structure
from subclass_aot.errors import TangentError

MODES = {
    "eager": lambda f: f,
    "aot_compile": aot_compile,
    "torch.compile": lambda f: torch.compile(f, backend="aot_eager"),
}


class Lora(WrapperTensor):
    base: torch.Tensor
    down: torch.Tensor
    up: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.base + self.up @ self.down


class Sum(WrapperTensor, fallback="each"):
    """Its gradient has its class, too."""

    left: torch.Tensor
    right: torch.Tensor
    shift: int = 0

    def to_plain(self) -> torch.Tensor:
        return self.left + 2 * self.right + self.shift


class Chosen(WrapperTensor, fallback="each"):
    content: torch.Tensor
    mask: torch.Tensor = structure()

    def to_plain(self) -> torch.Tensor:
        return torch.where(self.mask, self.content, 0)


class Same(WrapperTensor, fallback="each"):
    """What it stands for is its inner tensor."""

    inside: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.inside


def lora() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(4, 5), torch.randn(2, 5, requires_grad=True), torch.randn(4, 2, requires_grad=True)


def close(got: Any, expected: Any) -> None:
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.fixture(params=MODES.values(), ids=MODES.keys())
def compiled(request: pytest.FixtureRequest) -> Any:
    torch.compiler.reset()
    return request.param


@pytest.mark.filterwarnings("ignore")  # of Dynamo, which looks into the constructor
class TestGradients:
    @pytest.mark.parametrize("cls", [Int8Weight, Lora])
    def test_the_dense_tensor_of_one_that_requires_grad(self, cls: Any, compiled: Any) -> None:
        made = Int8Weight.from_float(torch.randn(4, 5)) if cls is Int8Weight else Lora(*[x.detach() for x in lora()])
        program = lambda w: (torch.ones(3, 5) @ w.to_plain().t()).sin()  # noqa: E731
        plain = made.to_plain().requires_grad_()
        expected = torch.autograd.grad((torch.ones(3, 5) @ plain.t()).sin().sum(), plain)
        w = made.requires_grad_()
        got = torch.autograd.grad(compiled(program)(w).sum(), w)
        assert type(got[0]) is torch.Tensor
        close(got, expected)

    def test_a_gradient_of_the_class(self, compiled: Any) -> None:
        x = Sum(torch.rand(3), torch.rand(3), 1).requires_grad_()
        (got,) = torch.autograd.grad(compiled(lambda x: x.to_plain().sin())(x).sum(), x)
        cosine = x.detach().to_plain().cos()
        assert type(got) is Sum and got.shift == 1
        close((got.left, got.right), (cosine, 2 * cosine))

    def test_a_gradient_has_the_structure_of_its_tensor(self, compiled: Any) -> None:
        x = Chosen(torch.rand(3), torch.tensor([True, False, True])).requires_grad_()
        (got,) = torch.autograd.grad(compiled(lambda x: x.to_plain() * 2)(x).sum(), x)
        assert got.content.tolist() == [2, 0, 2] and got.mask.equal(x.mask) and got.mask is not x.mask

    def test_an_inner_tensor_gets_no_history(self, compiled: Any) -> None:
        x = Same(torch.rand(3)).requires_grad_()
        (got,) = torch.autograd.grad(compiled(lambda x: x.to_plain() * 2)(x).sum(), x)
        assert not x.inside.requires_grad and x.inside.grad_fn is None and got.inside.eq(2).all()

    @pytest.mark.parametrize("use", [lambda w: dense(w).sin(), lambda w: (w * 2).sin(), lambda w: w.sum(0)])
    def test_what_goes_into_the_constructor(self, use: Any, compiled: Any) -> None:
        base, down, up = lora()
        got = torch.autograd.grad(compiled(lambda d, u: use(Lora(base, d, u)))(down, up).sum(), (down, up))
        close(got, torch.autograd.grad(use(base + up @ down).sum(), (down, up)))

    def test_what_goes_into_the_constructor_of_a_class_with_gradients_of_its_own(self, compiled: Any) -> None:
        left, right = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
        got = torch.autograd.grad(
            compiled(lambda x, y: (Sum(x, y) * 3).to_plain().sin())(left, right).sum(), (left, right)
        )
        close(got, torch.autograd.grad((3 * left + 6 * right).sin().sum(), (left, right)))

    def test_a_learned_scale(self, compiled: Any) -> None:
        codes = torch.randint(-9, 9, (4, 5), dtype=torch.int8)
        scale, x = torch.rand(4, 1, requires_grad=True), torch.randn(3, 5)
        got = torch.autograd.grad(compiled(lambda s: (x @ Int8Weight(codes, s).t()).sin())(scale).sum(), scale)
        close(got, torch.autograd.grad((x @ (codes * scale).t()).sin().sum(), scale))


def dense(w: Any) -> Any:
    return w.to_plain() if isinstance(w, WrapperTensor) else w


def test_second_derivatives() -> None:
    base, down, up = lora()
    found = []
    for make in (lambda: Lora(base, down, up).to_plain(), lambda: base + up @ down):
        (first,) = torch.autograd.grad(make().sin().sum(), up, create_graph=True)
        found.append(torch.autograd.grad((first * first).sum(), (down, up)))
    close(*found)


def test_without_grad_mode_nothing_is_kept() -> None:
    base, down, up = lora()
    with torch.no_grad():
        made = Lora(base, down, up)
        assert not made.requires_grad and not made.down.requires_grad
        assert not made.requires_grad_().to_plain().requires_grad
    with torch.inference_mode():
        assert not Lora(base, down, up).requires_grad


def test_a_class_without_a_way_to_its_fields() -> None:
    class Opaque(WrapperTensor):
        inside: torch.Tensor

    @Opaque.implements(torch.ops.aten.sin.default)
    def _(x: Any) -> Any:
        return x.inside.sin() if isinstance(x, Opaque) else NotImplemented

    @Opaque.implements(torch.ops.aten.cos.default)
    def _(x: Any) -> Any:
        return x.inside.cos()

    x = torch.rand(3, requires_grad=True)
    with pytest.raises(
        TangentError,
        match="A tensor of the class Opaque was made of tensors that require grad, and its",
    ):
        Opaque(x).sin().sum().backward()


class Product(WrapperTensor, views="broadcast"):
    values_: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.values_ * self.scale

    def from_plain(self, plain: torch.Tensor) -> Product:
        return Product(plain / 2, torch.full_like(self.scale, 2.0))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("write", [lambda k, scale: k.mul_(2.0), lambda k, scale: scale.mul_(10)])
def test_what_was_written_since_has_no_gradient(write: Any, compiled: bool) -> None:
    """Not a wrong one: fields are those that the tensor was made of."""

    def program(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        k = Product(values, scale)
        out = k.sum()
        write(k, scale)
        return out + k.sum()

    values, scale = torch.ones(1, 2, requires_grad=True), torch.full((1, 1), 3.0)
    run = aot_compile(program) if compiled else program
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        run(values * 1, scale).backward()
