"""Programs that random search found to be wrong once, made small by hand or by `check_compiled`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled, difference
from tests.fuzz.trees import ForeignTwoTensor


def test_a_view_of_a_view_that_was_turned_in_place() -> None:
    def program(x: Any) -> Any:
        last = x.chunk(2, -1)[-1]
        last.squeeze_()
        return last.chunk(2, -1)[-1], last

    check_compiled(program, [torch.rand(2, 3)])
    check_compiled(program, [torch.rand(3, 2, 3)[1]])
    with pytest.raises(MutationError, match="size or strides of its base, or of another view of that, in place"):
        aot_compile(program)(TwoTensor(torch.rand(2, 3), torch.rand(2, 3)))


def test_a_view_that_is_written_and_turned() -> None:
    """Eager has a wrong gradient, too, if the two are in the other order."""

    def program(x: Any) -> None:
        x.mul_(2)
        x.t_()

    root = TwoTensor(torch.rand(2, 3), torch.rand(2, 3)).requires_grad_()
    base = root.clone()
    with pytest.raises(MutationError, match="Autograd makes the view again"):
        aot_compile(program)(base.view_as(base))
    check_compiled(program, [root.clone()])
    dense = torch.rand(2, 3, requires_grad=True).clone()
    check_compiled(program, [dense.view_as(dense)])


def test_an_inner_tensor_that_is_turned_beside_its_wrapper() -> None:
    inner = torch.rand(2, 3)
    with pytest.raises(MutationError, match=r"args\[1\] and args\[0\].a are one tensor"):
        aot_compile(lambda x, y: y.t_().sum())(TwoTensor(inner, torch.rand(2, 3)), inner)


def test_a_gradient_of_a_view_of_a_wrapper_beside_a_dense_tensor() -> None:
    inner = TwoTensor(torch.rand(2, 2), torch.rand(2, 2))
    check_compiled(lambda x: (x * 2).chunk(2, -1)[0], [ForeignTwoTensor(inner, torch.rand(2, 2)).requires_grad_()])


def test_a_wrapper_of_a_family_of_views_that_is_turned_and_written() -> None:
    def program(x: Any, y: Any) -> Any:
        x.t_()
        with torch.no_grad():
            x.mul_(2)
        return y * 1

    base = TwoTensor(torch.rand(2, 2), torch.rand(2, 2)).requires_grad_().clone()
    with pytest.raises(MutationError, match="args\\[0\\] is a view"):
        aot_compile(program)(base.view_as(base), base[1:])


def test_a_size_that_became_known_of_a_tensor_that_another_input_holds() -> None:
    def program(x: Any, y: Any) -> Any:
        return x * 2, y.unbind()[-1]

    compiled = aot_compile(program, dynamic=True)
    for rows in (2, 4):
        inner = torch.rand(rows, 3)
        x = TwoTensor(inner, torch.rand(rows, 3))
        assert compiled(x, inner)[1].equal(inner[-1])
    assert len(compiled.recompiles) == 1


def test_an_inner_wrapper_with_symbolic_sizes_is_written_by_its_own_name() -> None:
    def program(x: Any) -> Any:
        x.a.mul_(2)
        return x

    compiled = aot_compile(program, dynamic=True)
    x = TwoTensor(TwoTensor(torch.ones(2, 3), torch.ones(2, 3)), TwoTensor(torch.ones(2, 3), torch.ones(2, 3)))
    inner = x.a
    assert compiled(x) is x and inner._version == 1 and inner.a.sum() == 12


def test_the_storage_offset_of_a_wrapper_changes_with_its_size() -> None:
    compiled = aot_compile(lambda x: TwoTensor(x, x), dynamic=True)
    for rows in (2, 4):
        parts = torch.rand(2, rows, 3)
        x = TwoTensor(parts[1], torch.rand(2, rows, 3)[1])
        result = compiled(x)
        assert result.a.storage_offset() == x.storage_offset() == rows * 3


@pytest.mark.parametrize("first", [True, False])
def test_counters_of_inner_tensors_of_a_wrapper_that_autograd_sees_written(first: bool) -> None:
    def program(x: Any) -> Any:
        if first:
            x.mul_(2)
        x.a.mul_(2)
        if not first:
            x.mul_(2)
        return x * 3

    root = TwoTensor(torch.rand(2, 3), torch.rand(2, 3)).requires_grad_()
    check_compiled(program, [root.clone()])


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_written_input_whose_product_with_a_wrapper_is_not_used(depth: int) -> None:
    def wrapped(depth: int) -> Any:
        return TwoTensor(wrapped(depth - 1), wrapped(depth - 1)) if depth else torch.rand(2, 3)

    def program(x: Any, w: Any) -> Any:
        product = x * w
        x.mul_(2)
        return product

    gradients = []
    for function in (program, aot_compile(program)):
        root = torch.ones_like(wrapped(depth)).requires_grad_()
        x = root.clone()
        function(x, wrapped(depth + 1))
        x.sum().backward()
        gradients.append(root.grad)
    assert not difference(*gradients)


@pytest.mark.parametrize("rows", [(0, 0, 1), (1, 1, 0), (0, 0, 2), (0, 1, 1, 0), (2, 0, 1, 0), (0, 2, 0)])
@pytest.mark.parametrize("backwards", [False, True])
def test_parts_of_a_storage_are_written_of_which_some_overlap(rows: tuple[int, ...], backwards: bool) -> None:
    """The new value of a storage goes back as a whole, so all that is written of it must be in there."""

    def program(*args: Any) -> None:
        for i, x in enumerate(reversed(args) if backwards else args, 2):
            x.mul_(i)

    storage = torch.rand(3, 4)
    check_compiled(program, [storage[i].detach() for i in rows])
    check_compiled(program, [TwoTensor(storage[i].detach(), torch.rand(4)) for i in rows])


@pytest.mark.parametrize("look", [lambda x: x.detach(), lambda x: x.detach()[1:], lambda x: x.detach().t()])
@pytest.mark.parametrize("wrapper", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_detached_input_that_is_written_has_a_history_and_the_memory_of_the_input(
    look: Any, wrapper: bool, grad: bool
) -> None:
    def program(x: Any, y: Any) -> Any:
        seen = look(x)
        seen.add_(look(y) * look(y) * y.sum())
        return seen

    def make() -> Any:
        return TwoTensor(torch.rand(3, 3), torch.rand(3, 3)) if wrapper else torch.rand(3, 3)

    check_compiled(program, [make().requires_grad_(grad), make().requires_grad_()])
    check_compiled(program, [make().requires_grad_(grad), make().requires_grad_()], dynamic=True)


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[1:], lambda x: x.unbind()[0], lambda x: x.view(-1)])
def test_inner_tensors_that_are_views_of_a_result_have_no_history(view: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        largest = x.max(-1)[0]
        with torch.no_grad():
            return largest, TwoTensor(y.detach(), view(largest.detach()))

    check_compiled(program, [torch.rand(2, 3).requires_grad_(), torch.rand(2)])


def test_a_view_that_is_used_after_its_base_was_turned_in_place() -> None:
    def program(x: Any) -> Any:
        view = x.t()
        x.unsqueeze_(0)
        return view * 2

    x = torch.rand(2, 3).requires_grad_().clone()
    with pytest.raises(MutationError, match=r"changes the size or strides(.|\n)*return view \* 2"):
        aot_compile(program)(x)
    assert x.shape == (2, 3)


def test_an_error_of_the_users_stays_what_it_is_after_a_tensor_was_turned() -> None:
    def program(x: Any) -> Any:
        x.t_()
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="^mine$"):
        aot_compile(program)(torch.rand(2, 3))
