"""Inputs that share memory, whatever wraps them."""

from __future__ import annotations

from typing import Any

import pytest
import torch


@pytest.mark.inductor("two", "affine")
def test_dense_shares_storage_with_inner_and_is_written(agree: Any, kind: Any) -> None:
    def program(x: Any, s: Any) -> Any:
        x.mul_(2)
        return s + 1

    def make() -> Any:
        s = kind(3, 4)
        return kind.inner(s), s

    agree(program, make)


@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_wrapper_is_written_and_dense_is_read(agree: Any, kind: Any, part: slice) -> None:
    def program(x: Any, s: Any) -> Any:
        s.mul_(2)
        return x + 1, s * 3

    def make() -> Any:
        s = kind(3, 4)
        return kind.inner(s)[part], s

    agree(program, make)


def test_gradients_where_dense_shares_storage_with_inner(agree: Any, kind: Any) -> None:
    def program(x: Any, s: Any, w: Any) -> Any:
        before = s * w
        x.mul_(2)
        return before + s * w

    def make() -> Any:
        s = kind(3, 4)
        return kind.inner(s), s, kind(3, 4, grad=True, seed=1)

    agree(program, make, lambda args, out: torch.autograd.grad(out.sum(), args[2]))


@pytest.mark.inductor("two")
def test_two_wrappers_share_an_inner_tensor(agree: Any, kind: Any) -> None:
    def program(s: Any, t: Any) -> Any:
        early = t * 1
        s.mul_(2)
        return t + 1, early

    def make() -> Any:
        s = kind(3, 4)
        return s, kind.around(kind.inner(s), like=kind(3, 4, seed=1))

    agree(program, make)


def test_two_wrappers_share_storage_through_views(agree: Any, kind: Any) -> None:
    def program(s: Any, t: Any) -> Any:
        s[0].mul_(2)
        t[1:].mul_(3)
        return s + 1, t + 1

    def make() -> Any:
        s = kind(3, 4)
        return s, kind.around(kind.inner(s), like=kind(3, 4, seed=1))

    agree(program, make)


@pytest.mark.parametrize("grad_mode", [True, False])
def test_gradients_where_two_wrappers_share_an_inner_tensor(agree: Any, kind: Any, grad_mode: bool) -> None:
    """Autograd knows nothing of what the two share, in eager as compiled."""

    def program(s: Any, t: Any) -> Any:
        with torch.set_grad_enabled(grad_mode):
            s.mul_(2)
        return s * t

    def make() -> Any:
        s = kind.non_leaf(3, 4)
        return s, kind.around(kind.inner(s), like=kind(3, 4, seed=1)).requires_grad_()

    agree(program, make, lambda args, out: torch.autograd.grad(out.sum(), [args[0].root, args[1]]))


@pytest.mark.inductor("two")
def test_one_tensor_twice_in_a_wrapper(agree: Any, kind: Any) -> None:
    def program(s: Any) -> Any:
        s.mul_(2)
        return s + 1

    agree(program, lambda: (holds_twice(kind),))


def test_gradients_of_a_wrapper_that_holds_one_tensor_twice(agree: Any, kind: Any) -> None:
    def program(s: Any) -> Any:
        s.mul_(2)
        return s.sin()

    def make() -> Any:
        root = holds_twice(kind).requires_grad_()
        s = root.view_as(root) * 1
        s.root = root
        return (s,)

    agree(program, make, lambda args, out: torch.autograd.grad((args[0] * out).sum(), args[0].root))


def test_inner_views_that_overlap(agree: Any, kind: Any) -> None:
    def program(s: Any) -> Any:
        s[:1].mul_(2)
        return s * 3

    def make() -> Any:
        whole = [torch.rand(4, 1 if dtype is torch.float64 else 3, dtype=dtype) for dtype in kind.dtypes]
        same = {dtype: tensor for dtype, tensor in zip(kind.dtypes, whole, strict=True)}
        return (kind.built(*[same[dtype][1:] for dtype in kind.dtypes]),)

    torch.manual_seed(0)
    fixed = make()[0]
    agree(program, lambda: (kind.built(*_again(kind.leaves(fixed))),))


def holds_twice(kind: Any) -> Any:
    """A wrapper whose leaves of equal dtype are one tensor."""
    one = {leaf.dtype: leaf for leaf in kind.leaves(kind(3, 4))}
    return kind.built(*[one[dtype] for dtype in kind.dtypes])


def _again(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies that share storage as the originals do."""
    storages: dict[int, torch.Tensor] = {}
    copies = []
    for leaf in leaves:
        pointer = leaf.untyped_storage().data_ptr()
        if pointer not in storages:
            flat = leaf.as_strided((leaf.untyped_storage().nbytes() // leaf.element_size(),), (1,), 0)
            storages[pointer] = flat.clone()
        copies.append(storages[pointer].as_strided(leaf.size(), leaf.stride(), leaf.storage_offset()))
    return copies


@pytest.mark.inductor("two")
@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("shared_first", [True, False])
def test_inner_tensors_that_alias_in_one_call_only(kind: Any, writes: bool, shared_first: bool, build: Any) -> None:
    def program(s: Any) -> Any:
        if writes:
            s.mul_(2)
        return s * 3

    def make(shared: bool) -> Any:
        return holds_twice(kind) if shared else kind(3, 4)

    compiled = build(program)
    for shared in (shared_first, not shared_first, shared_first):
        expected, got = make(shared), make(shared)
        for x, y in zip(kind.leaves(program(expected)), kind.leaves(compiled(got)), strict=True):
            torch.testing.assert_close(x, y)
        for x, y in zip(kind.leaves(expected), kind.leaves(got), strict=True):
            torch.testing.assert_close(x, y)
    assert len(compiled.recompiles) == 1


@pytest.mark.inductor("two")
def test_written_argument_passed_twice(agree: Any, kind: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        x.mul_(2)
        return x * 1 + y

    def make() -> Any:
        x = kind(3, 4)
        return x, x

    agree(program, make)


@pytest.mark.inductor("two")
def test_gradients_of_a_written_argument_passed_twice(agree: Any, kind: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        early = y * 3
        x.mul_(2)
        return early + x * y

    def make() -> Any:
        x = kind.non_leaf(3, 4)
        return x, x

    agree(program, make, lambda args, out: torch.autograd.grad(out.sum(), args[0].root))


@pytest.mark.inductor("two")
def test_written_inputs_overlap(agree: Any, kind: Any) -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        x.mul_(2)
        z.mul_(3)
        return x + y[0], z

    def make() -> Any:
        x = kind(4, 4)
        return x[0], x[0:2], x[1:]

    agree(program, make)


def test_parts_of_one_storage_that_lie_apart(agree: Any, kind: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        x.mul_(2)
        y.mul_(3)
        return x + y

    def make() -> Any:
        x = kind(4, 4)
        return x[:2], x[2:]

    agree(program, make)


def test_overlap_written_without_autograd(agree: Any, kind: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        with torch.no_grad():
            x.mul_(2)
        return y * 2

    def make() -> Any:
        x = kind(4, 4, grad=True)
        return x.detach()[0:2], x

    agree(program, make, lambda args, out: torch.autograd.grad(out.sum(), args[1]))


def test_overlap_written_with_autograd(agree: Any, kind: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        x.mul_(2)
        return (x + y).sum()

    def make() -> Any:
        x = kind.non_leaf(4, 4)
        first = x[0]
        first.root = x.root
        return first, x[0:2]

    agree(program, make, lambda args, out: torch.autograd.grad(out, args[0].root))
