"""Operators on lists of tensors write where these stand, if that makes no difference."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import subclass_aot as sa
from subclass_aot.backends.lists import writes_lists, writing_form
from tests.backends.test_written_inputs import copies_of

pytestmark = pytest.mark.usefixtures("either_way")

aten = torch.ops.aten
add_, mul_, lerp_ = torch._foreach_add_, torch._foreach_mul_, torch._foreach_lerp_
Program = Callable[..., Any]


def momentum(*xs: torch.Tensor) -> None:
    weights, states, gradients = list(xs[:2]), list(xs[2:4]), list(xs[4:])
    mul_(states, 0.9)
    add_(states, gradients)
    add_(weights, states, alpha=-0.1)


def adam(*xs: torch.Tensor) -> None:
    weights, means, squares, gradients = list(xs[:2]), list(xs[2:4]), list(xs[4:6]), list(xs[6:])
    lerp_(means, gradients, 0.1)
    mul_(squares, 0.9)
    torch._foreach_addcmul_(squares, gradients, gradients, 0.1)
    roots = torch._foreach_sqrt(squares)
    add_(roots, 1e-8)
    torch._foreach_addcdiv_(weights, means, roots, -0.1)


def fused(*xs: torch.Tensor) -> None:
    weights, gradients, states = list(xs[:2]), list(xs[2:4]), list(xs[4:])
    options = {"weight_decay": 0.1, "momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": False, "maximize": False}
    torch._fused_sgd_(weights, gradients, states, is_first_step=False, **options)  # type: ignore[attr-defined]


IN_PLACE: dict[str, tuple[Program, int]] = {
    "momentum": (momentum, 6),
    "adam": (adam, 8),
    "fused": (fused, 6),
    "a list and one by itself": (lambda x, y, z: (add_([x, y], 1), x.mul_(z), None)[2], 3),
    "what is read is a list of others": (lambda x, y, z: (add_([x, y], [z, z]), None)[1], 3),
}
OTHERWISE: dict[str, tuple[Program, int]] = {
    "itself": (lambda x, y: add_([x, y], [x, y]), 2),
    "views of one": (lambda x, y: add_([x[0], x[1]], [x[1], y[0]]), 2),
    "the old one is a result": (lambda x, y: (x.clone(), add_([x, y], 1))[0], 2),
    "the old one is read later": (lambda x, y: (x * 1, add_([x, y], 1), y.mul_(2), None)[0], 2),
    "the old one is read after": (lambda x, y: (torch._foreach_add([x, y], 1)[0].add_(x), x.add_(1))[0], 2),
    "the new one is another result": (lambda x, y: (add_([x, y], 1), x.clone())[1], 2),
    "one of two is no input": (lambda x, y: (z := y * 2, add_([x, z], 1), z)[2], 2),
    "neither is an input": (lambda x, y: (z := [x * 2, y * 2], add_(z, [y, x]), z[0] + z[1])[2], 2),
    "neither is, and one is read later": (lambda x, y: (z := [x * 2, y * 2], torch._foreach_add(z, 1)[0] + z[0])[1], 2),
    "views of what is computed": (lambda x, y: (z := x * 2, add_([z[0], z[1]], [z[1], y[0]]), z)[2], 2),
    "expanded": (lambda x, y: (z := (y * 1)[:1].expand(3, 3), torch._foreach_add([x, z], 1)[1])[1], 2),
    "another dtype": (lambda x, y: torch._foreach_add([(x > 1) * 2, y], 0.5)[0], 2),
    "a value is compared after": (lambda x, y: (add_([x, y], 1), y * 2 if (y * y).sum() > -1 else y)[1], 2),
    "a value is read after": (lambda x, y: (add_([x, y], 1), y * float(x[0, 0]))[1], 2),
    "fused, with a gradient read later": (lambda *xs: (fused(*xs), xs[2] * 2)[1], 6),
    "fused, of what is computed": (lambda *xs: (ys := [x * 2 for x in xs], fused(*ys), ys[0] + ys[5])[2], 6),
    "fused, in part of what is computed": (lambda *xs: (g := xs[2] * 2, fused(*xs[:2], g, *xs[3:]), None)[2], 6),
    "fused, and the old weights": (lambda *xs: (xs[0] * 1, fused(*xs))[0], 6),
    "fused, and views": (lambda *xs: fused(*[x[1] for x in xs]), 6),
}
"""Programs that are right, whether or not they write where a list stands."""


def tensors(count: int) -> list[torch.Tensor]:
    return [torch.arange(9.0).view(3, 3) / (i + 7) for i in range(count)]


@pytest.mark.parametrize("name", IN_PLACE)
def test_where_they_stand(name: str) -> None:
    fn, count = IN_PLACE[name]
    assert copies_of(fn, *tensors(count), versions=False) == 0


@pytest.mark.parametrize("name", OTHERWISE)
def test_as_in_eager_mode(name: str) -> None:
    fn, count = OTHERWISE[name]
    copies_of(fn, *tensors(count), versions=False)


@pytest.mark.parametrize(
    "func, form",
    [
        (aten._foreach_add.Scalar, aten._foreach_add_.Scalar),
        (aten._foreach_sqrt.default, aten._foreach_sqrt_.default),
        (aten._foreach_addcdiv.ScalarList, aten._foreach_addcdiv_.ScalarList),
        (aten._foreach_norm.Scalar, None),
        (aten._foreach_pow.ScalarAndTensor, None),
        (aten._foreach_add_.Scalar, None),
        (aten.cat.default, None),
        (torch.add, None),
    ],
)
def test_forms(func: Any, form: Any) -> None:
    found = writing_form(func)
    assert (None if found is None else found.func) is form and (form is None or writes_lists(form))


OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": (optim.SGD, {"momentum": 0.9, "fused": True}),
    "Adam": (optim.Adam, {"fused": True}),
    "AdamW, amsgrad": (optim.AdamW, {"fused": True, "amsgrad": True}),
    "Adagrad": (optim.Adagrad, {"fused": True}),
    "foreach": (optim.NAdam, {"foreach": True}),
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str, whole: bool) -> None:
    """The step alone, and with forward and backward in the same graph."""
    make, options = OPTIMIZERS[name]

    def trained(compile_it: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        optimizer = make(net.parameters(), lr=0.1, weight_decay=0.01, **options)

        def backward() -> None:
            optimizer.zero_grad()
            net(torch.ones(2, 3)).square().sum().backward()

        def both() -> None:
            backward()
            optimizer.step()

        step = both if whole else optimizer.step
        run: Any = sa.aot_compile(step) if compile_it else step
        for _ in range(5):
            if not whole:
                backward()
            run()
        states = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
        gradients = [p.grad for p in net.parameters()]
        return [x.detach() for x in (*net.parameters(), *gradients, *states)]

    ours, theirs = trained(True), trained(False)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_a_fused_step_is_one_call() -> None:
    weights = [torch.ones(3), torch.ones(3)]

    def step(*gradients: torch.Tensor) -> None:
        fused(*weights, *gradients, *states)

    states = [torch.zeros(3), torch.zeros(3)]
    made: list[str] = []
    from subclass_aot.backends import one_by_one

    write = one_by_one.write_graph
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "subclass_aot.backends.eager.write_graph",
            lambda graph: (run := write(graph), made.append(run.__source__))[0],  # type: ignore[attr-defined]
        )
        sa.aot_compile(step)(torch.ones(3), torch.ones(3))
    assert len(re.findall("_fused_sgd_", made[-1])) == 1 and "clone" not in made[-1] and "copy" not in made[-1]
