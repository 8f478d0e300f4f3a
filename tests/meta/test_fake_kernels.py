"""Custom operators whose sizes depend on data: their fake kernels ask for sizes, and results have these as symbols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.library import custom_op, get_ctx

from subclass_aot import MetaTensor, aot_compile
from subclass_aot.base.operators import effects_of
from subclass_aot.errors import DataDependentError, RuntimeAssertError, ShapeRuleError

Tensor = torch.Tensor
Program = Callable[[Tensor], Any]


@custom_op("test_fake_kernels::places", mutates_args=())
def places(x: Tensor) -> Tensor:
    return (x > 0).nonzero()


@places.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty([get_ctx().new_dynamic_size(), x.dim()], dtype=torch.int64)


@custom_op("test_fake_kernels::positive", mutates_args=())
def positive(x: Tensor) -> Tensor:
    return x[x > 0] * 2


@positive.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty([get_ctx().new_dynamic_size(max=100)])


def _of_positive(ctx: Any, gradient: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return torch.zeros_like(x).masked_scatter(x > 0, gradient * 2)


positive.register_autograd(_of_positive, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@custom_op("test_fake_kernels::by_sign", mutates_args=())
def by_sign(x: Tensor) -> tuple[Tensor, list[Tensor], int]:
    return x[x > 0].clone(), [x[x <= 0][:, None].clone()], int((x > 0).sum())


@by_sign.register_fake
def _(x: Tensor) -> tuple[Tensor, list[Tensor], Any]:
    ctx = get_ctx()
    first, second = ctx.new_dynamic_size(), ctx.new_dynamic_size()
    return x.new_empty([first]), [x.new_empty([second, 1])], first


@custom_op("test_fake_kernels::count", mutates_args=())
def count(x: Tensor) -> int:
    return int((x > 0).sum())


@count.register_fake
def _(x: Tensor) -> Any:
    return get_ctx().new_dynamic_size()


@custom_op("test_fake_kernels::next_places", mutates_args=())
def next_places(x: Tensor) -> Tensor:
    return places(x) + x.nonzero().sum()


@next_places.register_fake
def _(x: Tensor) -> Tensor:
    return torch.ops.test_fake_kernels.places(x) + x.nonzero().sum()


@custom_op("test_fake_kernels::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x[x > 0].repeat(2)


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(2 * get_ctx().new_dynamic_size(), device=x.device)


@custom_op("test_fake_kernels::take", mutates_args=("taken",))
def take(x: Tensor, taken: Tensor) -> Tensor:
    taken += (x > 0).sum()
    return x[x > 0].clone()


@take.register_fake
def _(x: Tensor, taken: Tensor) -> Tensor:
    return x.new_empty([get_ctx().new_dynamic_size()])


@custom_op("test_fake_kernels::one_more", mutates_args=())
def one_more(x: Tensor) -> Tensor:
    return x.new_ones(int((x > 0).sum()) + 1)


@one_more.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty([get_ctx().new_dynamic_size() + 1])


@custom_op("test_fake_kernels::at_least_two", mutates_args=())
def at_least_two(x: Tensor) -> Tensor:
    return x[x > 0].clone()


@at_least_two.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty([get_ctx().create_unbacked_symint()])


def taking(x: Tensor) -> Any:
    taken = torch.zeros(())
    return take(x, taken) + taken, taken


def checked(x: Tensor) -> Tensor:
    found = positive(x)
    torch._check(found.shape[0] >= 1)
    return found[0] * found


def branching(x: Tensor) -> Tensor:
    found = positive(x)
    return found * 2 if found.shape[0] > 2 else found * 3


def doubled(x: Tensor) -> Any:
    found = twice(x)
    return found + 1, found.view(2, -1), torch.ones(found.shape[0] // 2)


PROGRAMS: dict[str, Program] = {
    "a size": lambda x: places(x) + 1,
    "a gradient": lambda x: positive(x).sin() * 3,
    "a size that is no result's": lambda x: positive(x).sum(),
    "of what has such a size": lambda x: positive(positive(x) - 3),
    "several, and a list and a number": lambda x: (by_sign(x)[0] * by_sign(x)[2], by_sign(x)[1][0].sum()),
    "a number": lambda x: torch.ones(count(x)) * x.shape[0],
    "other operators in the kernel": lambda x: next_places(x) * 2,
    "a size twice": doubled,
    "a view": lambda x: positive(x)[None].expand(2, -1).reshape(-1),
    "a check": checked,
    "a branch": branching,
    "a look": lambda x: x * 2 if positive(x).sum() > 3 else x * 3,
    "in a loop": lambda x: torch.stack([positive(row).sum() for row in x.view(2, -1)]),
}

TRAINED = {
    "a gradient",
    "a size that is no result's",
    "of what has such a size",
    "a view",
    "a check",
    "a branch",
    "a look",
}

VALUES = [1.0, 2, 3, -1], [1.0, 2, 3, 4], [3.0, -1, -2, -1], [5.0, 4, -3, 2, 1, 2]


def outcome(program: Program, values: list[float], trained: bool) -> Any:
    """Results, and gradients."""
    x = torch.tensor(values, requires_grad=trained)
    results = program(x)
    if not trained:
        return results
    return results, torch.autograd.grad((results * results).sum(), x)


def assert_same(compiled: Program, program: Program, values: list[float], trained: bool = False) -> None:
    torch.testing.assert_close(outcome(compiled, values, trained), outcome(program, values, trained))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_aot_compile(name: str, dynamic: bool | None) -> None:
    compiled = aot_compile(PROGRAMS[name], dynamic=dynamic)
    for values in VALUES:
        assert_same(compiled, PROGRAMS[name], values, name in TRAINED)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("name", ["a gradient", "several, and a list and a number", "a size twice", "it writes"])
def test_torch_compile(name: str) -> None:
    program = taking if name == "it writes" else PROGRAMS[name]
    compiled = torch.compile(program, backend="subclass_aot")
    for values in VALUES[:3]:
        assert_same(compiled, program, values, name in TRAINED)


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
@pytest.mark.parametrize(
    ("program", "trained"),
    [(PROGRAMS["a gradient"], True), (doubled, False), pytest.param(taking, False, marks=pytest.mark.long)],
    ids=["a gradient", "a size twice", "it writes"],
)
def test_inductor(program: Program, trained: bool) -> None:
    compiled = aot_compile(program, fw_compiler="inductor")
    for values in VALUES[:2]:
        assert_same(compiled, program, values, trained)


@pytest.mark.parametrize("dynamic", [None, True])
def test_it_writes(dynamic: bool | None) -> None:
    compiled = aot_compile(taking, dynamic=dynamic)
    for values in VALUES:
        assert_same(compiled, taking, values)
    with pytest.raises(DataDependentError, match="take.default asks for values"):
        aot_compile(taking, dynamic=False)(torch.ones(3))


def test_one_compilation_serves_many_sizes() -> None:
    compiled = aot_compile(PROGRAMS["a gradient"], dynamic=True)
    for length in range(2, 7):
        compiled(torch.ones(length))
    assert not compiled.recompiles


def test_it_is_found_out_once() -> None:
    """Also where it comes after other calls of the operator, and without symbols."""

    @custom_op("test_fake_kernels::sometimes", mutates_args=())
    def sometimes(x: Tensor, is_all: bool) -> Tensor:
        return x.clone() if is_all else x[x > 0].clone()

    @sometimes.register_fake
    def _(x: Tensor, is_all: bool) -> Tensor:
        return torch.empty_like(x) if is_all else x.new_empty([get_ctx().new_dynamic_size()])

    operator = torch.ops.test_fake_kernels.sometimes.default
    program = lambda x: (sometimes(x, True) * 2, sometimes(x, False) * 3)  # noqa: E731
    assert not effects_of(operator).shape_by_data
    compiled = aot_compile(program, dynamic=True)
    for values in VALUES:
        assert_same(compiled, program, values)
    assert effects_of(operator).shape_by_data and effects_of(operator).data_dependent


@custom_op("test_fake_kernels::found_first", mutates_args=())
def found_first(x: Tensor) -> Tensor:
    return x.nonzero().clone()


@found_first.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x.nonzero())


def test_it_is_found_out_where_sizes_are_symbols_already() -> None:
    compiled = aot_compile(lambda x: found_first(x) * 2, dynamic=True)
    for values in VALUES:
        assert_same(compiled, lambda x: found_first(x) * 2, values)


def test_what_the_kernel_promises_is_checked() -> None:
    compiled = aot_compile(lambda x: at_least_two(x) * 2)
    assert compiled(torch.tensor([1.0, 2, -1])).tolist() == [2, 4]
    with pytest.raises(RuntimeAssertError, match="The program says that 2 <= n0, and in this call n0 = 1"):
        compiled(torch.tensor([1.0, -2, -1]))


def test_a_size_of_which_only_a_sum_is_seen_is_refused() -> None:
    with pytest.raises(ShapeRuleError, match=r"one_more.default gives a size that is computed(.|\n)*: u\d+ \+ 1"):
        aot_compile(lambda x: one_more(x) * 2)(torch.ones(3))
    compiled = aot_compile(lambda x: one_more(x) * 2, dynamic=False)
    assert compiled(torch.ones(3)).tolist() == [2] * 4


def test_without_values_it_is_refused() -> None:
    x = MetaTensor(torch.ones(3, device="meta"), torch.device("cpu"))
    with pytest.raises(DataDependentError, match=r"The result's shape depends on the data"):
        positive(x)
    with pytest.raises(DataDependentError, match=r"The result's shape depends on the data"):
        aot_compile(lambda x: positive(x), dynamic=False, values="refuse")(torch.ones(3))


@custom_op("test_fake_kernels::less_than_none", mutates_args=())
def less_than_none(x: Tensor) -> Tensor:
    return x.clone()


@less_than_none.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty([get_ctx().new_dynamic_size(min=-1)])


def test_a_size_is_not_negative() -> None:
    with pytest.warns(UserWarning, match=r"new_dynamic_size\(min=-1\): a size is not negative"):
        assert aot_compile(lambda x: less_than_none(x))(torch.ones(3)).tolist() == [1, 1, 1]
