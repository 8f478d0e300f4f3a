"""Programs with wrappers that torch's own backends get wrong, or refuse, behind `torch.compile` on this one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, MaskedTensor, Outer, TwoTensor, WrapperTensor
from subclass_aot.testing.runs import Later, differences, observe
from tests.doors.dynamo.checks import Make, check, made_by, rand


def beside(share: bool) -> list[Any]:
    """A dense tensor and a wrapper, one of whose inner tensors may share its memory."""
    x = rand(3)
    return [x, TwoTensor(x[:] if share else rand(3), rand(3))]


def two(share: bool) -> list[Any]:
    x = rand(3)
    return [TwoTensor(x, rand(3)), TwoTensor(x[:] if share else rand(3), rand(3))]


def itself(call: int) -> list[Any]:
    x = rand(3)
    return [TwoTensor(x, x[:])]


def overlapping(call: int) -> list[Any]:
    x = TwoTensor(rand(4, 2), rand(4, 2))
    return [x[:3], x[1:]]


def twice(call: int) -> list[Any]:
    x = rand(3, cls=TwoTensor)
    return [x, x]


def masked(call: int) -> list[Any]:
    return [MaskedTensor(rand(3), rand(3) > 0.5)]


class Half(WrapperTensor):
    """Its operators run on the tensor that it means, and so its gradients are dense."""

    whole: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.whole)

    def to_plain(self) -> torch.Tensor:
        return self.whole / 2


def half(call: int) -> list[Any]:
    return [Half(rand(3)).requires_grad_()]


ROWS: dict[str, tuple[Any, Make]] = {
    "1: a write into what an inner tensor shares": (lambda x, s: (x.mul_(2), s + 1)[1], lambda _: beside(True)),
    "2: two wrappers share an inner tensor": (lambda p, q: (p.mul_(2), q + 1)[1], lambda _: two(True)),
    "3: a wrapper whose inner tensors are one": (lambda s: (s.mul_(2), s + 1)[1], itself),
    "4: sharing comes and goes": (lambda p, q: (p.mul_(2), q + 1)[1], lambda call: two(call % 2 == 1)),
    "4: sharing goes and comes": (lambda x, s: (x.mul_(2), s + 1)[1], lambda call: beside(call % 2 == 0)),
    "8: another shape": (lambda s: s * 2, lambda call: [rand(3 + 2 * call, cls=TwoTensor)]),
    "11: an inner tensor of what was written": (lambda s: (s.mul_(2), s.a)[1], lambda _: [rand(3, cls=TwoTensor)]),
    "12: a view of a quantized weight": (lambda w: w.view(12), lambda _: [Int8Weight.from_float(rand(4, 3))]),
    "13: results that are views of one": (lambda s: (s * 2).unbind(), lambda _: [rand(3, grad=True, cls=TwoTensor)]),
    "14: one argument twice": (lambda x, y: (x.mul_(2), y + 1)[1], twice),
    "15: arguments that overlap": (lambda x, y: (x.mul_(2), y.add_(1), x + y)[2], overlapping),
    "16: a write that autograd sees": (
        lambda s, y: (s.mul_(2), s * y)[1],
        lambda _: [rand(3, grad=True, cls=TwoTensor) * 1, rand(3)],
    ),
    "18: a dense gradient of a wrapper": (lambda h: h.clone(), half),
    "18: one of a wrapper and a dense tensor": (lambda h: (h.clone(), h * 2), half),
    "20: t_": (lambda s: (s.t_(), s * 2)[1], lambda _: [rand(3, 2, cls=TwoTensor)]),
    "20: unsqueeze_": (lambda s: (s.unsqueeze_(0), s * 2)[1], lambda _: [rand(3, 2, cls=TwoTensor)]),
    "21: a view of an input": (lambda s: s[1:], lambda _: [rand(3, 2, grad=True, cls=TwoTensor)]),
    "22: a write into one inner tensor": (lambda s: (s.a.mul_(2), s + 1)[1], lambda _: [rand(3, cls=TwoTensor)]),
    "26: an input, and one result twice": (
        lambda s: (lambda y: (s, y, y))(s * 2),
        lambda _: [rand(3, grad=True, cls=TwoTensor)],
    ),
    "27: mixed classes": (
        lambda s, w: torch.nn.functional.linear(s.a, w) + s.b.sum(),
        lambda _: [rand(2, 3, cls=TwoTensor), Int8Weight.from_float(rand(4, 3))],
    ),
    "27: a structure among the fields": (lambda m: m * 2, masked),
    "34: random numbers": (lambda s: s * torch.rand_like(s), lambda _: [rand(3, grad=True, cls=TwoTensor)]),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row(row: str) -> None:
    program, make = ROWS[row]
    check(program, make, fullgraph=False)


@pytest.mark.parametrize(
    "later",
    [
        Later(used=(True, False)),
        Later(used=(False, True)),
        Later(twice=True),
        Later(tangents="expanded"),
        Later(after="no_grad"),
    ],
    ids=str,
)
def test_what_is_done_with_the_results(later: Later) -> None:
    """Rows 10, 17, 19 and 31: backward through some results, again, with other strides, after a write."""

    def program(p: Any, q: Any) -> Any:
        return (p * q).sin(), p + q

    def make(call: int) -> list[Any]:
        return [rand(3, grad=True, cls=TwoTensor), rand(3, grad=True, cls=TwoTensor)]

    compiled = torch.compile(program, backend="subclass_aot", fullgraph=True)
    for call in range(3):
        expected = observe(program, made_by(make, call), later=later)
        found = observe(compiled, made_by(make, call), later=later, like=expected)
        assert not list(differences(expected, found))


def test_what_was_saved_is_written_before_backward() -> None:
    """Row 5: the error of eager mode, where torch's own backends give gradients of the written values."""
    p, q = rand(3, grad=True, cls=TwoTensor), rand(3, grad=True, cls=TwoTensor)
    product: Any = torch.compile(lambda p, q: p * q, backend="subclass_aot")(p, q)
    with torch.no_grad():
        p.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_another_context() -> None:
    """Row 6: what is no tensor in a wrapper."""
    weights = [Int8Weight.from_float(rand(4, 3)).to(dtype) for dtype in (torch.float32, torch.float64, torch.float32)]
    compiled: Any = torch.compile(lambda w, x: torch.nn.functional.linear(x, w), backend="subclass_aot")
    for w in weights:
        x = rand(2, 3).to(w.dtype)
        torch.testing.assert_close(compiled(w, x), torch.nn.functional.linear(x, w))


def test_other_modes() -> None:
    """Row 31: grad mode and autocast, one way at the first call and another later."""
    w = Int8Weight.from_float(rand(4, 3))
    compiled: Any = torch.compile(lambda w, x: torch.nn.functional.linear(x, w), backend="subclass_aot")
    for cast in (True, False, True):
        for grad in (True, False):
            x = rand(2, 3, grad=True)
            with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=cast):
                expected, found = torch.nn.functional.linear(x, w), compiled(w, x)
            assert found.requires_grad == expected.requires_grad
            torch.testing.assert_close(found, expected)
