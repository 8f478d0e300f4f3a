"""Kernels for the Python key do what the generated code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, _native
from subclass_aot.kit.wrapper import WrapperTensor
from tests.native.both_ways import outcome, served
from tests.native.wrappers import Added, Child, Coded, Masked, Named, Product, Shown, Twice, aten, dense, two

pytestmark = pytest.mark.skipif(
    _native.accelerator("kernels") is None, reason="the accelerator is optional: without it there is only Python"
)


MAKERS: dict[str, Callable[[int], Any]] = {
    "two": lambda seed: two(TwoTensor, 4, 4, seed=seed),
    "context": lambda seed: Named(dense(4, 4, seed=seed), ("a", 300), dense(4, 4, seed=seed + 1)),
    "child": lambda seed: two(Child, 4, 4, seed=seed),
    "nested": lambda seed: TwoTensor(two(TwoTensor, 4, 4, seed=seed), two(TwoTensor, 4, 4, seed=seed + 7)),
    "outer rule": lambda seed: two(Twice, 4, 4, seed=seed),
    "to_plain, each": lambda seed: two(Product, 4, 4, seed=seed),
    "to_plain": lambda seed: Coded(dense(4, 4, seed=seed), dense(4, 1, seed=seed)),
    "author's rule": lambda seed: two(Added, 4, 4, seed=seed),
    "structure": lambda seed: Masked(dense(4, 4, seed=seed), dense(4, 4, seed=seed) > 0),
    "torch's names": lambda seed: two(Shown, 4, 4, seed=seed),
    "parts of memory": lambda seed: TwoTensor(dense(6, 8, seed=seed).t()[2:6, 1:5], dense(4, 4, seed=seed)),
    "parameters": lambda seed: TwoTensor(torch.nn.Parameter(dense(4, 4), False), dense(4, 4, seed=seed)),
}
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "detach": lambda x, y: (x, x.detach()),
    "alias": lambda x, y: (x, aten.alias(x)),
    "clone": lambda x, y: (x, x.clone(), x.clone(memory_format=torch.contiguous_format)),
    "add": lambda x, y: (x + y, x + 1, 2 - x, torch.add(x, y, alpha=2)),
    "mm": lambda x, y: x.mm(y) + x.t() @ y,
    "beside dense": lambda x, y: (x * torch.ones(4), torch.full((4, 4), 3.0) / y, x * torch.tensor(2.0).double()),
    "views": lambda x, y: (x, x.t(), x.view(16), x[1], x[:, 1:3], x.unsqueeze(0), x.expand(2, 4, 4), x.diagonal()),
    "views of views": lambda x, y: (x, x.view(2, 8)[1].view(2, 4).t()),
    "in place": lambda x, y: (x.mul_(2).add_(y, alpha=3), x, y),
    "a view is written": lambda x, y: (x[1].mul_(2), x),
    "a whole is written": lambda x, y: (v := x.view(16), x.add_(1), v, x),
    "random": lambda x, y: (torch.rand_like(x), x.clone().normal_(), torch.dropout(x, 0.5, True)),
    "several": lambda x, y: (*x.max(0), *torch.var_mean(x), *torch.nn.functional.layer_norm(x, (4,)).min(1)),
    "likes": lambda x, y: (torch.zeros_like(x), torch.ones_like(x, dtype=torch.int32), x.to(torch.float64)),
    "reductions": lambda x, y: (x.sum(), x.mean(0), x.amax(1, keepdim=True), x.softmax(-1)),
    "sizes that do not fit": lambda x, y: x.mm(y[:3].t()),
    "a dim there is not": lambda x, y: x.sum(5),
    "no number": lambda x, y: torch.add(x, y, alpha=True),
    "a dense one is written": lambda x, y: torch.zeros(4, 4).add_(x),
    "a leaf is written": lambda x, y: x.requires_grad_().mul_(2),
    "no_grad": lambda x, y: torch.no_grad()(lambda: (x.requires_grad_() * y, x.view(16)))(),
    "inference": lambda x, y: torch.inference_mode()(lambda: (x.view(16), x * y, (x * y).view(16)))(),
    "out": lambda x, y: torch.add(x, y, out=x.clone()),
    "lists": lambda x, y: (torch.cat([x, y]), *x.split(2), *torch._foreach_add([x, y], 1)),
    "other shapes in place": lambda x, y: (x.t_(), x.unsqueeze_(0)),
    "conjugates": lambda x, y: (torch.complex(x, y).conj() * 2, torch.complex(x, y).conj().imag.neg()),
    "the same twice": lambda x, y: (x + x, x.mul_(x), x.addcmul_(x, x)),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("maker", MAKERS)
def test_programs_give_the_same_as_in_python(maker: str, program: str) -> None:
    make, run = MAKERS[maker], PROGRAMS[program]
    hits = served(lambda: run(make(1), make(2)))
    if maker in ("two", "context", "child", "nested", "torch's names") and program in ("detach", "add", "mm", "views"):
        assert hits


@pytest.mark.parametrize(
    ("view", "is_served"),
    [
        (lambda x: x[:2], True),
        (lambda x: x[1:-1:2], True),
        (lambda x: x[-1], True),
        (lambda x: x.select(-2, 1), True),
        (lambda x: x.narrow(0, 1, 0), True),
        (lambda x: x.squeeze(0), True),
        (lambda x: x[1:2].squeeze(0), True),
        (lambda x: x[:2][1:], True),
        (lambda x: x[:, 1:], False),
        (lambda x: x[:, 1], False),
        (lambda x: x.squeeze(1), False),
        (lambda x: x.select(2, 0), False),
        (lambda x: x.select(-3, 0), False),
        (lambda x: x.select(0, 4), True),
        (lambda x: x[:, 1:].narrow(0, 0, 2), False),
    ],
)
def test_a_view_along_a_dim_in_which_all_fields_are_as_long(view: Callable[[Any], Any], is_served: bool) -> None:
    def program() -> Any:
        x = Coded(dense(4, 4), dense(4, 1)).requires_grad_()
        made = view(x)
        return x, made, torch.autograd.grad(made.sum(), x)

    hits = served(program)
    assert bool(sum(hits[f"aten::{name}"] for name in ("slice.Tensor", "select.int", "squeeze.dim"))) == is_served


@pytest.mark.parametrize("maker", MAKERS)
def test_gradients_are_the_same_as_in_python(maker: str) -> None:
    def program() -> Any:
        x, y = MAKERS[maker](1).requires_grad_(), MAKERS[maker](2).requires_grad_()
        out = ((x * y).tanh() @ x.t()).view(-1).pow(2)
        first = torch.autograd.grad(out, [x, y], torch.ones_like(out), create_graph=True, retain_graph=True)
        second = torch.autograd.grad(first[0], [x, y], torch.ones_like(first[0]), retain_graph=True)
        out.backward(torch.ones_like(out))
        written = x.detach().clone().requires_grad_()
        copy = written.clone()
        copy[0].mul_(3)
        copy.view(16).sigmoid_()
        (last,) = torch.autograd.grad(copy, written, torch.ones_like(copy))
        return *first, *second, x.grad, y.grad, last

    served(program)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_steps_of_optimizers(optimizer: Any) -> None:
    def program() -> Any:
        weight = torch.nn.Parameter(two(TwoTensor, 4, 4))
        steps = optimizer(
            [weight], lr=0.1, weight_decay=0.1, **({"momentum": 0.9} if optimizer is torch.optim.SGD else {})
        )
        for _ in range(3):
            steps.zero_grad()
            loss = (weight * weight).sum()
            loss.backward(torch.ones_like(loss))
            steps.step()
        return weight, weight.grad, *[v for v in steps.state[weight].values() if isinstance(v, torch.Tensor)]

    hits = served(program)
    assert hits["aten::detach"] and hits["aten::add_.Tensor"]


CONTEXTS: list[tuple[object, object]] = [
    (("a", 300), ("a", 300)), ("a", "b"), (float("nan"), float("nan")), (1, True), (None, 0),
    (frozenset({1}), frozenset({1})),
]  # fmt: skip


@pytest.mark.parametrize("mine,theirs", CONTEXTS)
def test_contexts_are_compared_as_in_python(mine: object, theirs: object) -> None:
    x, y = Named(dense(4), mine, dense(4)), Named(dense(4), theirs, dense(4))
    served(lambda: x + y)
    served(lambda: y + x)


def test_not_a_number_is_not_itself() -> None:
    nan = float("nan")
    x, y = Named(dense(4), nan, dense(4)), Named(dense(4), nan, dense(4))
    assert not served(lambda: x + y)
    assert not served(lambda: x + x)
    assert served(lambda: x.neg())


def test_a_context_that_cannot_be_compared() -> None:
    class Rude:
        def __ne__(self, other: object) -> bool:
            raise OSError("rude")

        __hash__ = object.__hash__

    x, y = Named(dense(4), Rude(), dense(4)), Named(dense(4), Rude(), dense(4))
    assert not served(lambda: x + y)


def test_a_rule_added_later_is_heeded() -> None:
    class Base(WrapperTensor, fallback="each"):
        left: torch.Tensor
        right: torch.Tensor

    class Derived(Base):
        pass

    for cls in (Base, Derived):
        assert served(lambda cls=cls: (two(cls, 3) + two(cls, 3), two(cls, 3) * 2))["aten::add.Tensor"]
    Base.implements(aten.add.Tensor)(lambda x, y, **_: type(x)(x.left, y.right))
    for cls in (Base, Derived):
        assert not served(lambda cls=cls: two(cls, 3) + two(cls, 3))
        assert torch.equal((two(cls, 3) + two(cls, 3, seed=1)).left, two(cls, 3).left)
        assert served(lambda cls=cls: two(cls, 3) * 2)
    Base.implements(aten.mul)(lambda x, y: x)
    assert not served(lambda: two(Derived, 3).mul_(2)), "which the rule for `mul` serves, too"


@pytest.mark.parametrize("name", ["left", "right", "label"])
def test_an_attribute_that_is_gone(name: str) -> None:
    def program() -> Any:
        x = Named(dense(4), "a", dense(4))
        y = x + x
        del x.__dict__[name]
        return y, x + x

    assert outcome(program)[0] is AttributeError
    served(program)


def test_an_inner_tensor_that_is_none() -> None:
    def program() -> Any:
        x = two(TwoTensor, 4)
        x + x
        x.__dict__["b"] = 3
        return x.exp()

    served(program)
