"""Programs on each class: eager mode is what dense tensors give, and compiled is eager mode, gradients too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.functional import linear

import subclass_aot as sa
from subclass_aot.testing import check_compiled
from tests.authors.c_lora import Lora
from tests.authors.g_units import Quantity
from tests.authors.h_fields import Parts
from tests.authors.makes import CHECKED, MAKES, normal
from tests.authors.uses import dense

pytestmark = pytest.mark.long


class Case(NamedTuple):
    """A program, what it is called with beside a tensor of the class, and whether dense tensors give the same."""

    name: str
    program: Callable[..., Any]
    others: tuple[torch.Tensor, ...] = ()
    make: Callable[[], Any] | None = None
    as_dense: bool = True


def flip(w: Any, x: torch.Tensor) -> Any:
    return linear(x, w)


METRES, SECONDS = (1, 0, 0), (0, 0, 1)
FULL = MAKES | {name: make for name, (make, _) in CHECKED.items()}
QUARTERS = torch.tensor([[0.0, 0.25], [0.5, 1.0]])
CASES: dict[str, list[Case]] = {
    "a_int4": [
        Case("linear", flip, (normal(3, 64),)),
        Case("linear with bias", lambda w, x, b: linear(x, w, b), (normal(2, 3, 64), normal(8))),
        Case("rows", lambda w, x: x @ w[:4].t(), (normal(3, 64),)),
        Case("groups", lambda w, x: x @ w[:, 32:].t(), (normal(3, 32),)),
        Case("odd columns", lambda w, x: x @ w[:, 3:35].t(), (normal(3, 32),)),
    ],
    "b_nf4": [
        Case("linear", flip, (normal(3, 128),)),
        Case("plain", lambda w, x: x @ dense(w).t(), (normal(3, 128),)),
        Case("product", lambda w, x: w * x, (normal(8, 128),)),
    ],
    "c_lora": [
        Case("linear", flip, (normal(3, 5),)),
        Case("plain", lambda w, x: x @ dense(w).t(), (normal(3, 5),)),
        Case("over int4", flip, (normal(3, 64),), lambda: Lora(MAKES["a_int4"](), normal(2, 64), normal(8, 2))),
    ],
    "d_masked": [
        Case("sin", lambda x: x.sin() * 2),
        Case("sum of squares", lambda x: (x * x).sum()),
        Case("mean of rows", lambda x: x.exp().sum(1).mean()),
        Case("largest", lambda x: x.t().amax(0)),
    ],
    "e_jagged": [
        Case("sin", lambda x: x.sin() * x, make=MAKES["e_jagged"]),
        Case("rows", lambda x: (x * x).sum(1), make=MAKES["e_jagged"]),
        Case("with dense", lambda x, y: (x * y).sum(1), (normal(3, 3, 4),), MAKES["e_jagged"]),
    ],
    "f_sparse": [Case("linear", flip, (normal(3, 16),)), Case("product", lambda w, x: w * x, (normal(6, 16),))],
    "g_units": [
        Case("area", lambda x: (x * x).sum()),
        Case("speed", lambda x, t: (x / Quantity(t, SECONDS)).mean(), (normal(3, 4).abs() + 1,)),
    ],
    "h_fields": [
        Case("mm", lambda w, x: torch.mm(x, w).tanh(), (normal(2, 4),)),
        Case("plain", lambda w, x: x @ dense(w), (normal(2, 4),)),
        Case(
            "without bias",
            lambda w, x: torch.mm(x, w).tanh(),
            (normal(2, 4),),
            lambda: Parts([normal(4, 3)], {"gain": normal(4, 1)}),
        ),
    ],
    "h_counting": [Case("affine", lambda c: (c * 2 + 1).sum(), as_dense=False)],
    "i_float8": [
        Case("mixed", lambda a, b: a @ b.t(), (normal(16, 16),)),
        Case("row", lambda a, x: x @ a[3], (normal(2, 16),)),
    ],
    "k_complex": [
        Case("polynomial", lambda a, b: (a @ b * a + b).abs(), (normal(3, 3) + 1j * normal(3, 3, seed=2),)),
        Case("own product", lambda a: (a @ a * a).abs()),
        Case("conjugate", lambda a: (a.conj() * a).real + a.mH.imag),
        Case("exp and fft", lambda a: torch.fft.fft(a.exp()).abs()),
    ],
}
ALL = [pytest.param(name, case, id=f"{name}-{case.name}") for name, cases in CASES.items() for case in cases]


def arguments(name: str, case: Case) -> list[Any]:
    """A tensor of the class and what comes with it, all of which require grad."""
    made = [(case.make or FULL[name])(), *(x.clone() for x in case.others)]
    return [x.requires_grad_() for x in made]


def test_every_class_has_programs() -> None:
    assert CASES.keys() == MAKES.keys()


@pytest.mark.parametrize("name, case", ALL)
def test_eager_mode_is_that_of_dense_tensors(name: str, case: Case) -> None:
    args = arguments(name, case)
    plain = [dense(arg.detach()).requires_grad_() for arg in args]
    out, expected = case.program(*args), case.program(*plain)
    if name == "g_units":
        assert type(out) is Quantity and type(expected) in (torch.Tensor, Quantity)
    torch.testing.assert_close(dense(out.detach()), dense(expected.detach()), rtol=1e-4, atol=1e-4)
    for each in (out, expected):
        each.sum().backward()
    for arg, other in zip(args, plain, strict=True):
        torch.testing.assert_close(dense(arg.grad), dense(other.grad), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name, case", ALL)
def test_compiled_is_eager_mode(name: str, case: Case) -> None:
    check_compiled(case.program, arguments(name, case))


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
@pytest.mark.parametrize("name", CASES)
def test_inductor_is_eager_mode(name: str) -> None:
    case = CASES[name][0]
    args, others = arguments(name, case), arguments(name, case)
    out = sa.aot_compile(case.program, fw_compiler="inductor")(*args)
    expected = case.program(*others)
    assert type(out) is type(expected)
    torch.testing.assert_close(dense(out.detach()), dense(expected.detach()), rtol=1e-4, atol=1e-4)
    for each in (out, expected):
        each.sum().backward()
    for arg, other in zip(args, others, strict=True):
        assert type(arg.grad) is type(other.grad)
        torch.testing.assert_close(dense(arg.grad), dense(other.grad), rtol=1e-4, atol=1e-4)
