"""Inputs that are views of one tensor and have its history: a write to one changes that of the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled, difference


def root_of(kind: Any, *size: int) -> tuple[Any, Any]:
    """A non-leaf, and the leaf of autograd's graph that it comes from."""
    base = kind.non_leaf(*size)
    return base, base.root


def passed(root: Any, *tensors: Any) -> tuple[Any, ...]:
    """Arguments that know their root."""
    tensors[0].root = root
    return tensors


def gradients(args: Any, out: Any) -> Any:
    """Of the results alone; then of what the arguments are after the call."""
    tensors = [out] if isinstance(out, torch.Tensor) else list(out)
    loss = sum((t * t).sum() for t in tensors)
    first = torch.autograd.grad(loss, args[0].root, retain_graph=True)
    after = sum((x * x).sum() for x in args)
    return first, torch.autograd.grad(after + loss, args[0].root)


@pytest.mark.inductor("two")
def test_one_is_written_and_the_other_read(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        early = b * 3
        a.mul_(2)
        return early * b

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, base[:3], base[2:])

    agree(program, make, gradients)


@pytest.mark.parametrize("first", [True, False])
def test_a_tensor_and_a_view_of_it(agree: Any, kind: Any, first: bool) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        return a * b[:1], b * 2

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, *([base, base[1:3]] if first else [base[1:3], base]))

    agree(program, make, gradients)


def test_both_are_written_by_turns(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        b.mul_(3)
        a[1:].mul_(5)
        return a * 1, b * 1

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, base[:3], base[1:])

    agree(program, make, gradients)


def test_views_of_views_and_one_that_lies_apart(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        a.mul_(2)
        c.mul_(3)
        return a + b, c * 2

    def make() -> Any:
        base, root = root_of(kind, 6, 4)
        return passed(root, base[:4][1:3], base[2:][:2], base[5])

    agree(program, make, gradients)


def test_results_that_are_inputs_and_views_of_inputs(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        return b, b[0], a[1:], b.detach(), b * 2

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, base[:3], base[2:])

    agree(program, make, gradients)


def test_a_write_without_autograd_beside_one_with(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        with torch.no_grad():
            b.mul_(3)
        return a * 1, b * 2

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, base[:3], base[2:])

    agree(program, make, gradients)


def test_a_third_that_shares_memory_but_no_history(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        a.mul_(2)
        return a * 1, b * 2, c * 3

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, base[:3], base[2:], base.detach()[1:4])

    agree(program, make, lambda args, out: gradients(args, out[:2]))


def test_two_families(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any, c: Any, d: Any) -> Any:
        a.mul_(2)
        d.mul_(3)
        return a * 1, b * 2, c * 3, d * 4

    def make() -> Any:
        root = kind(5, 4, grad=True)
        one, two = root * 2, root * 3
        return passed(root, one[:3], two[:2], one[2:], two[1:])

    agree(program, make, gradients)


def test_nothing_is_written(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        return a * 2, b * 3

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, base[:3], base[2:])

    compiled = agree(program, make, gradients)
    assert "_base" not in compiled.source


def test_gradients_that_begin_with_the_write(agree: Any, kind: Any) -> None:
    """Nothing of the family requires grad before the call; afterwards all of it does."""

    def program(a: Any, b: Any, w: Any) -> Any:
        a.mul_(w)
        return b * 2

    def make() -> Any:
        base = kind(4, 4)
        return base[:2], base[1:], kind(2, 4, grad=True, seed=1)

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out.sum() + (args[0] * args[0]).sum() + args[1].sum(), args[2])

    agree(program, make, later)


@pytest.mark.parametrize("start", [1, 2])
def test_whatever_is_a_view_begins_to_require_grad(start: int) -> None:
    def program(a: Any, b: Any, w: Any) -> Any:
        a.mul_(w)
        return b * 2

    def run(function: Any) -> Any:
        base, w = torch.ones(4), torch.ones(2, requires_grad=True)
        out = function(base[:2], base[start:], w)
        return out, base, torch.autograd.grad(out.sum(), w)[0]

    for x, y in zip(run(program), run(aot_compile(program)), strict=True):
        assert not difference(x, y)


def make_pair(kind: Any, cut: Any) -> tuple[Any, ...]:
    base, root = root_of(kind, 4, 4)
    return passed(root, *cut(base))


def no_grad_view(base: Any) -> Any:
    with torch.no_grad():
        return base[:3]


CUTS = {
    "overlapping": lambda base: (base[:3], base[1:]),
    "elsewhere": lambda base: (base[1:], base[:3]),
    "turned": lambda base: (base[:3], base.t()[1:]),
    "detached": lambda base: (base[:3], base.detach()[1:].requires_grad_()),
    "apart": lambda base: (base[:3], (base * 1)[1:]),
    "with the base": lambda base: (base[:3], base),
}


@pytest.mark.parametrize("first", list(CUTS))
def test_another_relation_is_another_signature(kind: Any, first: str) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        return b * 3

    compiled = aot_compile(program)
    for name in (first, *CUTS, *CUTS):
        (expected, wanted), (got, given) = (make_pair(kind, CUTS[name]) for _ in range(2))
        results = program(expected, wanted), compiled(got, given)
        sums = [(results[0][:1] * expected[:1]).sum() + wanted.sum(), (results[1][:1] * got[:1]).sum() + given.sum()]
        for x, y in (
            (results[0], results[1]),
            (expected, got),
            (wanted, given),
            (torch.autograd.grad(sums[0], expected.root)[0], torch.autograd.grad(sums[1], got.root)[0]),
        ):
            assert not difference(x, y)
    assert len(compiled.recompiles) == len(CUTS) - 1
    assert "the same call as before" not in "".join(compiled.recompiles)


REFUSED = {
    "one of several views": lambda base: (base.unbind()[0], base[:2]),
    "made under no_grad": lambda base: (no_grad_view(base), base[1:]),
}


@pytest.mark.parametrize("cut", list(REFUSED))
def test_writes_that_autograd_refuses(kind: Any, cut: str) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        return a.sum() + b.sum()

    for _ in range(2):
        with pytest.raises(RuntimeError) as in_eager:
            program(*REFUSED[cut](kind.non_leaf(4, 4)))
        with pytest.raises(RuntimeError) as compiled:
            aot_compile(program)(*REFUSED[cut](kind.non_leaf(4, 4)))
        assert "leaf" in str(compiled.value) or str(in_eager.value) == str(compiled.value)


def test_the_view_of_a_leaf_that_requires_grad_is_not_written(kind: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        return a.sum() + b.sum()

    leaf = kind(4, 4, grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        aot_compile(program)(leaf[:3], leaf[1:])


@pytest.mark.unfit(affine="its views are rows", pair="its views are rows")
def test_a_view_that_is_turned(agree: Any, kind: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        b.t_()
        return a * 1, b

    def make() -> Any:
        base, root = root_of(kind, 5, 4)
        return passed(root, base[:3], base[2:])

    agree(program, make, gradients)


def test_a_view_that_is_turned_before_the_write(agree: Any) -> None:
    """Dense tensors only: of a wrapper, eager makes the view again as it was before it was turned."""

    def program(a: Any, b: Any) -> Any:
        b.t_()
        a.mul_(2)
        return a * 1, b

    def make() -> Any:
        root = torch.arange(20.0).view(5, 4).requires_grad_()
        base = root * 1
        return passed(root, base[:3], base[2:])

    agree(program, make, gradients)


def test_other_memory_for_an_inner_tensor_of_a_view() -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        b.a = b.a * 1
        return b * 2

    base = TwoTensor(torch.ones(4, 4), torch.ones(4, 4)).requires_grad_() * 1
    with pytest.raises(MutationError, match=r"args\[1\].a: the function put another"):
        aot_compile(program)(base[:3], base[2:])


def test_an_inner_tensor_of_a_view_that_is_turned() -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        b.a.t_()
        return a * 2

    base = TwoTensor(torch.ones(4, 4), torch.ones(4, 4)).requires_grad_() * 1
    with pytest.raises(MutationError, match=r"args\[1\].a has another size"):
        aot_compile(program)(base[:3], base[2:])


def test_requires_grad_set_by_hand_is_refused() -> None:
    def program(a: Any, b: Any, w: Any) -> Any:
        b.mul_(w)
        return a * 2

    base = torch.ones(4)
    with pytest.raises(MutationError, match=r"args\[0\] is a view"):
        aot_compile(program)(base[:3].requires_grad_(), base[1:], torch.ones(3, requires_grad=True))


def test_explain_names_the_tensor_behind_the_views() -> None:
    def program(a: Any, b: Any) -> Any:
        a.mul_(2)
        return b, b.sum()

    base = torch.ones(4, requires_grad=True) * 1
    compiled = aot_compile(program)
    compiled(base[:3], base[1:])
    text = compiled.explain()
    assert "args[0]._base: Tensor" in text and "args[1]: a view of" in text and "the same object as args[1]" in text


BASES = {
    "later in its storage": lambda: torch.arange(24.0).view(6, 4)[2:].detach(),
    "turned": lambda: torch.arange(16.0).view(4, 4).t().detach(),
}


@pytest.mark.inductor()
@pytest.mark.parametrize("base", list(BASES))
@pytest.mark.parametrize("cut", [lambda x: x[1:, 1:], lambda x: x[:, ::2], lambda x: x.diagonal(), lambda x: x.t()[1]])
def test_wherever_the_base_lies(agree: Any, base: str, cut: Any) -> None:
    def program(a: Any, b: Any, w: Any) -> Any:
        a.mul_(w)
        return b * 2

    def make() -> Any:
        whole = BASES[base]()
        return cut(whole), whole[:3], torch.full(cut(whole).shape, 3.0, requires_grad=True)

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad((out * out).sum() + (args[0] * args[0]).sum() + args[1].sum(), args[2])

    agree(program, make, later)


def test_a_view_that_only_as_strided_can_make_is_refused() -> None:
    def program(a: Any, b: Any, w: Any) -> Any:
        a.mul_(w)
        return b * 2

    base = torch.ones(4, 4)[:, :3].detach()
    with pytest.raises(MutationError, match=r"args\[0\] is a view .*\n.*as_strided"):
        aot_compile(program)(base[:3], base[1:], torch.ones(3, 3, requires_grad=True))


APART = [
    ("b.mul_(2)", "return a[-1] * b[0]"),
    ("a.t_()", "b.mul_(2)", "return a.t()[-1] * b[0]"),
    ("b.mul_(2)", "a.t_()", "return a.t()[-1] * b[0]"),
    ("b.mul_(2)", "a.unsqueeze_(0)", "a.transpose_(0, 1)", "return a[-1] * b[0], a * 2"),
    ("a.mul_(3)", "b.mul_(2)", "b.add_(a)", "return a * b"),
    ("b.t_()", "b.mul_(2)", "a.unsqueeze_(0)", "return a[0].t() * b, b[0]"),
]


@pytest.mark.parametrize("lines", APART, ids="; ".join)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_one_is_written_that_lies_apart_from_another(lines: tuple[str, ...], mode: Any) -> None:
    """They count together: what is saved of the other one stays valid, as in eager mode, where it is saved later."""
    scope: dict[str, Any] = {"torch": torch}
    exec("def program(a, b, w):\n" + "".join(f"    {line}\n" for line in ("b.mul_(w)", *lines)), scope)
    base = torch.rand(4, 2, requires_grad=True) * 1
    with mode():
        check_compiled(scope["program"], (base[:2], base[2:], torch.rand((), requires_grad=True)), tries=0)


OVERLAPPING = {
    "both are the same part": lambda base: (base[:2], base[:2]),
    "they overlap": lambda base: (base[:2], base[1:3]),
}


@pytest.mark.parametrize("cut", OVERLAPPING.values(), ids=OVERLAPPING)
@pytest.mark.parametrize("requires_grad", [True, False])
def test_one_is_turned_and_then_the_other_written_that_overlaps_it(cut: Any, requires_grad: bool) -> None:
    def program(a: Any, b: Any, w: Any) -> Any:
        a.t_()
        b.mul_(w)
        return b * 2

    def reads(a: Any, b: Any, w: Any) -> Any:
        program(a, b, w)
        return a * b.t()

    def given() -> Any:
        return *cut(torch.rand(4, 2, requires_grad=requires_grad) * 1), torch.rand(2, 2, requires_grad=True)

    check_compiled(program, given(), tries=0)
    check_compiled(reads, given(), tries=0)
    with torch.no_grad():
        check_compiled(reads, given(), tries=0)


@pytest.mark.parametrize("wraps", [False, True])
def test_one_is_written_that_counts_together_with_a_detached_one(wraps: bool) -> None:
    """Autograd knows of no common base, and still they have one version counter."""

    def program(a: Any, b: Any, w: Any) -> Any:
        b.mul_(w)
        b.add_(1)
        return a * b, b[0], a * w

    base, w = torch.rand(4, 2), torch.rand(2, 2)
    if wraps:
        base, w = TwoTensor(base, base.clone()), TwoTensor(w, w.clone())
    check_compiled(program, (base.detach()[2:], base[:2], w.requires_grad_()), tries=0)


def test_one_is_written_that_lies_apart_from_another_and_overlaps_a_third() -> None:
    def program(a: Any, b: Any, c: Any) -> Any:
        b.mul_(2)
        return a * b, c * 1

    base = torch.rand(6, requires_grad=True) * 1
    for third in (base.detach()[1:3], base[1:3]):
        check_compiled(program, (base[4:], base[:2], third), tries=0)


def test_a_write_after_the_call_is_seen_by_autograd() -> None:
    """Of one that counts together with another: what was saved of it is no longer there."""

    def program(a: Any, b: Any) -> Any:
        b.mul_(2)
        return (a * a).sum() + b.sum()

    for function in (program, aot_compile(program)):
        base = torch.rand(4, 2, requires_grad=True) * 1
        a, b = base[:2], base[2:]
        result = function(a, b)
        with torch.no_grad():
            a.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.backward()


@pytest.mark.parametrize("mode", ["inference", "none"])
def test_parts_that_were_made_in_inference_mode(mode: str) -> None:
    """Eager mode refuses to write them outside of it."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.mul_(2)
        return x + y

    with torch.inference_mode():
        base = torch.arange(8.0)
        parts = [base[:3], base[:3]]
    with torch.inference_mode(mode == "inference"):
        if mode == "inference":
            assert aot_compile(program)(*parts).tolist() == [0, 4, 8]
            return
        for run in (program, aot_compile(program)):
            with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
                run(*parts)


def given_up(x: Any, cut: Any, reads: bool, kept: dict[str, Any]) -> Any:
    """Makes a view without autograd, and writes its base with it: autograd gives the view up, and its values stay."""
    with torch.no_grad():
        view = cut(x)
    if not reads or x.sum() > -1:
        x.mul_(0.5)
    kept["view"] = view
    return view, x * 2


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize(
    "cut",
    [lambda x: x.t(), lambda x: x[1:], lambda x: x.view(-1), lambda x: x.diagonal(), lambda x: x.expand(2, 3, 3)],
    ids=["t", "slice", "view", "diagonal", "expand"],
)
def test_a_view_that_autograd_gives_up(cut: Any, is_input: bool, reads: bool) -> None:
    found = []
    for compile in (lambda program: program, aot_compile):
        kept: dict[str, Any] = {}
        leaf = torch.arange(9.0).view(3, 3).requires_grad_()
        run = compile(lambda x, kept=kept: given_up(x if is_input else x * 1, cut, reads, kept))
        for _ in range(2):
            x = leaf * 3
            view, result = run(x)
            (gradient,) = torch.autograd.grad(result.sum(), leaf)
            values = view.detach().clone(), kept["view"].detach().clone(), result.detach(), gradient
            found.append((values, kept["view"] is view))
    for (ours, same), (theirs, expected) in zip(found[2:], found[:2], strict=True):
        assert all(map(torch.equal, ours, theirs)) and same == expected
