"""Views of classes that say nothing of views, against those of the dense tensors that they stand for."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from subclass_aot import Int8Weight, Outer, WrapperTensor, aot_compile
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper import ViewOf

aten: Any = torch.ops.aten


class LowRank(WrapperTensor):
    """None of its fields has the size of the whole."""

    left: torch.Tensor
    right: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer((self.left.shape[0], self.right.shape[1]), None, self.left.dtype, self.left.device)

    def to_plain(self) -> torch.Tensor:
        return self.left @ self.right


class Packed(WrapperTensor):
    """Two codes of four bits in a byte, and a scale for each four."""

    packed: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        rows, half = self.packed.shape
        return Outer((rows, 2 * half), None, self.scale.dtype, self.scale.device)

    def to_plain(self) -> torch.Tensor:
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(1).to(self.scale.dtype) - 8
        return (codes.unflatten(1, (-1, 4)) * self.scale[..., None]).flatten(1)

    def from_plain(self, plain: torch.Tensor) -> Packed:
        groups = plain.unflatten(1, (-1, 4))
        scale = groups.abs().amax(-1).clamp(min=1e-6) / 7
        codes = (groups / scale[..., None]).round().flatten(1).to(torch.int8) + 8
        return Packed((codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), scale)


class Halved(WrapperTensor):
    """Of any number of dimensions; says nothing of views."""

    part: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return 2 * self.part


def low_rank() -> LowRank:
    torch.manual_seed(0)
    return LowRank(torch.randn(4, 2), torch.randn(2, 8))


def packed() -> Packed:
    torch.manual_seed(0)
    return Packed(torch.zeros(4, 4, dtype=torch.uint8), torch.ones(4, 2)).from_plain(torch.randn(4, 8))


@pytest.mark.parametrize(
    "view", [torch.t, lambda x: x.T, lambda x: x.mT, lambda x: x.transpose(-1, 0), lambda x: x.permute(1, 0)]
)
def test_what_is_transposed(view: Any) -> None:
    assert view(low_rank()).is_transposed


@pytest.mark.parametrize(
    "view",
    [
        lambda: low_rank().t().t(),
        lambda: low_rank().permute(0, 1),
        lambda: low_rank()[:2],
        lambda: low_rank().t()[:2],
        lambda: Halved(torch.ones(2, 3, 4)).mT,
        lambda: Halved(torch.ones(2, 3, 4)).transpose(0, 1),
        lambda: Halved(torch.ones(3)).t(),
    ],
)
def test_what_is_not_transposed(view: Any) -> None:
    assert not view().is_transposed


VIEWS: dict[str, Any] = {
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, -1),
    "permute": lambda x: x.unsqueeze(0).permute(2, 0, 1),
    "rows": lambda x: x[1:3],
    "columns": lambda x: x[:, 2:5],
    "every second": lambda x: x[::2, 1::2],
    "a row": lambda x: x[1],
    "a column": lambda x: x[..., -1],
    "an element": lambda x: x[1, 2],
    "narrow": lambda x: x.narrow(1, 1, 3),
    "split": lambda x: x.split(3, 1),
    "split of sizes": lambda x: x.split([1, 3]),
    "chunk": lambda x: x.chunk(3, -1),
    "unbind": lambda x: x.unbind(1),
    "view": lambda x: x.view(2, 16),
    "flat": lambda x: x.view(-1),
    "expand": lambda x: x.expand(2, 4, 8),
    "squeeze": lambda x: x[:1].squeeze(0),
    "as_strided": lambda x: x.as_strided((2, 2), (8, 1), 3),
    "one after another": lambda x: x.t()[1:5].view(2, 2, 4)[0].t(),
}


@pytest.mark.parametrize("compiler", ["", "eager", "inductor"])
@pytest.mark.parametrize("make", [low_rank, packed])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_it_is_the_view_of_the_dense_tensor(view: Any, make: Any, compiler: str) -> None:
    x = make()
    got = (aot_compile(view, fw_compiler=compiler) if compiler else view)(x)
    expected = view(x.to_plain())
    for mine, theirs in zip(got, expected, strict=True) if isinstance(expected, tuple) else [(got, expected)]:
        assert type(mine) is ViewOf and mine.shape == theirs.shape and mine.stride() == theirs.stride()
        assert mine.storage_offset() == theirs.storage_offset()
        torch.testing.assert_close(mine.to_plain(), theirs)
        assert mine._base is x and mine.base.to_plain().equal(x.to_plain())


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("make", [low_rank, packed])
@pytest.mark.parametrize("compile", [lambda f: f, aot_compile, lambda f: torch.compile(f, backend="aot_eager")])
def test_linear(make: Any, requires_grad: bool, compile: Any) -> None:
    torch.compiler.reset()
    weight, bias = nn.Parameter(make(), requires_grad=requires_grad), torch.randn(4)
    dense = make().to_plain().requires_grad_(requires_grad)
    found = []
    for function, w in ((F.linear, dense), (compile(F.linear), weight)):
        x = torch.ones(3, 8, requires_grad=True)
        out = function(x, w, bias)
        out.sin().sum().backward()
        found.append((out.detach(), x.grad, w.grad))
    for expected, got in zip(*found, strict=True):
        assert (expected is None) == (got is None)
        if expected is not None:
            torch.testing.assert_close(got, expected)


WRITES: dict[str, Any] = {
    "zero_": lambda x: x[:, :2].zero_(),
    "mul_": lambda x: x.t()[3].mul_(2),
    "copy_": lambda x: x.view(2, 16)[1].copy_(torch.linspace(-1, 1, 16)),
    "index": lambda x: x.__setitem__((slice(1, 3), 2), 0.5),
}


@pytest.mark.parametrize("mode", ["no_grad", "inference", "compiled", "compiled on the view"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_writes_reach_the_whole(write: Any, mode: str) -> None:
    x = packed()
    expected = x.to_plain()
    write(expected)
    with torch.inference_mode() if mode == "inference" else torch.no_grad():
        view = x.view(4, 8).t().t()
        if mode == "compiled on the view":
            aot_compile(lambda v: (write(v), v * 1)[1])(view)
        elif mode == "compiled":
            aot_compile(lambda x: (write(x), x * 1)[1])(x)
        else:
            write(x)
    step = expected.unflatten(1, (-1, 4)).abs().amax(-1, keepdim=True) / 7
    assert ((x.to_plain() - expected).unflatten(1, (-1, 4)).abs() <= step * 0.51 + 1e-6).all()
    torch.testing.assert_close(view.to_plain(), x.to_plain())


class Halves(WrapperTensor):
    """A complex tensor as two real ones."""

    one: torch.Tensor
    other: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.one, dtype=self.one.dtype.to_complex())

    def to_plain(self) -> torch.Tensor:
        return torch.complex(self.one, self.other)

    def from_plain(self, plain: torch.Tensor) -> Halves:
        return Halves(plain.real.clone(), plain.imag.clone())


PARTS: dict[str, Any] = {
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "conj": lambda x: x.conj().imag,
    "mH": lambda x: x.mH.imag,
    "twice": lambda x: x.mH.conj().imag,
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_parts_of_complex_tensors_and_conjugates(part: Any, compiled: bool) -> None:
    x = Halves(torch.randn(2, 3), torch.randn(2, 3))
    dense = x.to_plain()

    def program(x: Any) -> Any:
        return part(x) * 2

    torch.testing.assert_close(aot_compile(program)(x) if compiled else program(x), program(dense))


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS.keys())
def test_writes_into_parts_reach_the_whole_or_are_refused(part: Any) -> None:
    x = Halves(torch.randn(2, 3), torch.randn(2, 3))
    dense = x.to_plain()
    with torch.no_grad():
        try:
            part(x).mul_(2)
        except OperatorRuleError as error:
            assert part in (PARTS["conj"], PARTS["mH"]) and "part of a conjugate" in str(error)
        else:
            part(dense).mul_(2)
    torch.testing.assert_close(x.to_plain(), dense)


def test_a_class_that_takes_in_nothing() -> None:
    x = low_rank()
    with (
        torch.no_grad(),
        pytest.raises(OperatorRuleError, match="LowRank has no from_plain to take in"),
    ):
        x[:, :2].zero_()


def test_new_tensors_of_its_sizes_are_dense() -> None:
    view = packed().t()
    for make in (torch.clone, torch.empty_like, torch.zeros_like, lambda x: x.double(), lambda x: x.new_zeros(3)):
        assert type(make(view)) is torch.Tensor
    assert view.contiguous().is_contiguous() and view.clone(memory_format=torch.contiguous_format).stride() == (4, 1)


class Fast(Packed):
    """Whose product with its own transpose is done without the dense weight."""

    accepts = (ViewOf,)
    products = 0


@Fast.implements(aten.mm.default)
def _(a: torch.Tensor, b: torch.Tensor) -> Any:
    if not (isinstance(b, ViewOf) and b.is_transposed) or isinstance(a, WrapperTensor):
        return NotImplemented
    Fast.products += 1
    whole: Any = b.base
    return torch.cat([a @ row.to_plain()[:, None] for row in whole], 1)


@pytest.mark.parametrize("compile", [lambda f: f, aot_compile])
def test_rules_of_a_class_that_accepts_views(compile: Any) -> None:
    like = packed()
    weight = Fast(like.packed, like.scale)
    x = torch.randn(3, 8)
    Fast.products = 0
    torch.testing.assert_close(compile(F.linear)(x, weight), F.linear(x, weight.to_plain()))
    torch.testing.assert_close(compile(lambda x, w: x @ w.permute(1, 0))(x, weight), x @ weight.to_plain().t())
    assert Fast.products == 2
    square = torch.randn(4, 4)
    for other in (lambda x, w: x @ w, lambda x, w: w.t() @ x, lambda x, w: x[:, :2] @ w[:2]):
        expected = other(square, weight.to_plain())
        torch.testing.assert_close(compile(other)(square, weight), expected)
    assert Fast.products == 2  # the rule declines what it does not know
    with torch.no_grad():
        weight.t()[3].zero_()
    assert not weight.to_plain()[:, 3].any()


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_differ(dynamic: bool | None) -> None:
    compiled = aot_compile(lambda x: x[:, 1:].t() * 2, dynamic=dynamic)
    for rows in (4, 5, 6, 7):
        x = LowRank(torch.randn(rows, 2), torch.randn(2, 8))
        torch.testing.assert_close(compiled(x), x.to_plain()[:, 1:].t() * 2)
    assert len(compiled.recompiles) <= (dynamic is None)


@pytest.mark.parametrize("again", ["pickle", "deepcopy", "save"])
def test_saving(again: str) -> None:
    view = packed()[1:, :3]
    if again == "save":
        file = io.BytesIO()
        torch.save(view, file)
        file.seek(0)
        other = torch.load(file, weights_only=True)
    else:
        other = copy.deepcopy(view) if again == "deepcopy" else pickle.loads(pickle.dumps(view))
    assert type(other) is ViewOf and other.to_plain().equal(view.to_plain()) and other.stride() == view.stride()


def test_where_the_class_says_more() -> None:
    """A rule goes before, an operator without a rule is an error where the class says so, and `t_` has no such view."""

    class Strict(LowRank, fallback="error"):
        pass

    with pytest.raises(OperatorRuleError, match="declares no views"):
        Strict(torch.randn(4, 2), torch.randn(2, 8)).t()
    with pytest.raises(OperatorRuleError, match="declares no views"):
        low_rank().t_()

    class Turned(LowRank):
        pass

    @Turned.implements(torch.ops.aten.t.default)
    def _(x: Any) -> Any:
        return Turned(x.right.t(), x.left.t())

    assert type(Turned(torch.randn(4, 2), torch.randn(2, 8)).t()) is Turned


@pytest.mark.parametrize(
    "resolved", [lambda x: x.conj().resolve_conj(), lambda x: torch._neg_view(x).resolve_neg()], ids=["conj", "neg"]
)
@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_resolved_is_a_tensor_of_its_own(resolved: Any, compiled: bool) -> None:
    def program(x: Any) -> Any:
        copy = resolved(x)
        copy.mul_(2)
        return copy

    wrapper = Halved(torch.randn(2, 3, dtype=torch.complex64))
    dense = wrapper.to_plain()
    expected = program(dense.clone())
    assert (aot_compile(program) if compiled else program)(wrapper).equal(expected)
    assert wrapper.to_plain().equal(dense)


def test_a_conjugate_of_a_conjugate_is_written_through() -> None:
    wrapper = Written(torch.randn(2, 3, dtype=torch.complex64))
    dense = wrapper.to_plain()
    for x in (wrapper, dense):
        x.conj()[0].conj().resolve_conj().mul_(2)
    assert wrapper.to_plain().equal(dense)


class Written(Halved):
    def from_plain(self, plain: torch.Tensor) -> Written:
        return Written(plain / 2)


class Packing(WrapperTensor):
    """What it stands for is contiguous, whatever it looks like from outside."""

    part: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return (2 * self.part).contiguous()

    def from_plain(self, plain: torch.Tensor) -> Packing:
        return Packing(torch.empty_like(self.part).copy_(plain / 2))


def test_strides_are_counted_in_the_wrapper_and_not_in_what_it_stands_for() -> None:
    part = torch.arange(12.0).view(4, 3).t()
    wrapper, dense = Packing(part.clone()), 2 * part
    assert wrapper.stride() == dense.stride() == (1, 3)
    view, expected = (x.as_strided((2, 2), (3, 1), 1) for x in (wrapper, dense))
    assert isinstance(view, ViewOf) and view.to_plain().equal(expected)
    for x in (view, expected):
        x.mul_(-1)
    assert wrapper.to_plain().equal(dense)


@pytest.mark.parametrize("view", [lambda w: w.t().t(), lambda w: w[0][3:5], lambda w: w.view(2, 2, 8)[1]])
def test_views_of_views_in_inference_mode(view: Any) -> None:
    with torch.inference_mode():
        w = packed()
        torch.testing.assert_close(view(w).to_plain(), view(w.to_plain()))
        w.__tensor_flatten__(), view(w).__tensor_flatten__()
        torch.testing.assert_close((aot_compile(view)(w) * 1), view(w.to_plain()))


@pytest.mark.parametrize("returns", ["what it stands for", "the whole", "the view"])
def test_a_view_of_symbolic_sizes(returns: str) -> None:
    """What it was asked for stands in its context, and has no hash while a function is traced."""

    def fn(whole: Any) -> Any:
        diagonal = whole.diagonal()
        view = diagonal.expand(2, *diagonal.shape)
        return {"what it stands for": view * 1, "the whole": whole, "the view": view}[returns]

    compiled = aot_compile(fn, dynamic=True)
    for size in (4, 6), (8, 5):
        weight = Int8Weight.from_float(torch.randn(size))
        found, expected = compiled(weight), fn(weight)
        assert type(found) is type(expected)
        torch.testing.assert_close(*(x.to_plain() if hasattr(x, "to_plain") else x for x in (found, expected)))
    assert not compiled.recompiles and "with symbols it fails" not in compiled.explain()


def test_parts_of_symbolic_sizes() -> None:
    """How many there are is assumed, and that they are equal; how large they are is not."""

    def fn(whole: Any) -> Any:
        return [part * 2 for part in whole.diagonal().chunk(2)]

    compiled = aot_compile(fn, dynamic=True)
    for size in (4, 6), (8, 9), (6, 6):
        weight = Int8Weight.from_float(torch.randn(size))
        torch.testing.assert_close(compiled(weight), fn(weight))
    assert not compiled.recompiles and "with symbols it fails" not in compiled.explain()
