"""What operators are inferred to give, and that the cache of it keeps apart what is different."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import subclass_aot as sa
from subclass_aot.errors import DataDependentError, ShapeRuleError, TraceError
from subclass_aot.meta import MetaTensor, Spec
from subclass_aot.meta.dispatch import run
from subclass_aot.meta.infer import infer

aten = torch.ops.aten
ints = Spec.make((3,), (1,), dtype=torch.int64)


def leaf(*size: int, dtype: torch.dtype = torch.int64) -> MetaTensor:
    return MetaTensor(torch.empty(size, dtype=dtype, device="meta"))


@pytest.mark.parametrize("numbers", [(1, 1.0, True, 1 + 0j), (True, 1 + 0j, 1, 1.0), (0.0, 0, False)])
def test_equal_numbers_of_other_types_are_other_keys(numbers: tuple[Any, ...]) -> None:
    for x in (torch.arange(3), torch.zeros(3, dtype=torch.bool)):
        for number in numbers:
            assert run(aten.add.Tensor, (MetaTensor(x), number), {}).dtype == (x + number).dtype
            assert run(aten.full.default, ([2], number), {}).dtype == torch.full([2], number).dtype
            assert run(aten.stack.default, ([MetaTensor(x)] * 2, int(number.real)), {}).dtype == x.dtype


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_default_dtype_is_part_of_the_key(dtype: torch.dtype) -> None:
    before = torch.get_default_dtype()
    assert (leaf(3) / 2).dtype is before
    torch.set_default_dtype(dtype)
    try:
        assert (leaf(3) / 2).dtype == (torch.arange(3) / 2).dtype == dtype
        assert run(aten.full.default, ([2], 1.0), {}).dtype is dtype
    finally:
        torch.set_default_dtype(before)
    assert (leaf(3) / 2).dtype is before


def test_keyword_arguments_are_part_of_the_key() -> None:
    x = leaf(3, 4, dtype=torch.float32)
    assert run(aten.sum.dim_IntList, (x, [0]), {}).shape == (4,)
    assert run(aten.sum.dim_IntList, (x, [1]), {}).shape == (3,)
    assert run(aten.sum.dim_IntList, (x, [1], True), {}).shape == (3, 1)
    assert run(aten.sum.dim_IntList, (x, [1]), {"dtype": torch.float64}).dtype is torch.float64
    # A list ends where it ends: [x, y] and 1 is not [x] and y, 1.
    assert run(aten.index.Tensor, (x, [None, leaf(2)]), {}).shape == (3, 2)
    assert run(aten.index.Tensor, (x, [leaf(2), None]), {}).shape == (2, 4)


def test_arguments_that_cannot_be_hashed() -> None:
    def unhashable() -> dict[str, Any]:
        return {"generator": Unhashable()}

    class Unhashable(torch.Generator):
        __hash__ = None  # type: ignore[assignment]

    assert run(aten.bernoulli.default, (leaf(3, dtype=torch.float32),), unhashable()).shape == (3,)
    assert run(aten.randn.generator, ([2, 3],), unhashable()).shape == (2, 3)


SIZES = st.sampled_from([(3, 4), (1, 4), (3, 1), (2, 3, 4), (4,), ()])
DTYPES = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)


@given(SIZES, SIZES, DTYPES, DTYPES, st.sampled_from([torch.add, torch.mul, torch.eq, torch.where]))
def test_promotion_and_broadcasting(a: Any, b: Any, one: Any, other: Any, function: Any) -> None:
    x, y = torch.zeros(a, dtype=one), torch.zeros(b, dtype=other)

    def call(x: torch.Tensor, y: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(condition, x, y) if function is torch.where else function(x, y)
        return result

    condition = torch.ones((), dtype=torch.bool)
    try:
        expected = call(x, y, condition)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            call(MetaTensor(x), MetaTensor(y), MetaTensor(condition))
        return
    got = call(MetaTensor(x), MetaTensor(y), MetaTensor(condition))
    assert isinstance(got, MetaTensor) and got.meta_spec == Spec.of(expected)


@pytest.mark.parametrize(
    "func, args, what",
    [
        (aten.nonzero.default, (ints,), "shape"),
        (aten._local_scalar_dense.default, (Spec.make((), ()),), "value"),
        (aten.masked_select.default, (ints, Spec.make((3,), (1,), dtype=torch.bool)), "shape"),
        (aten._unique2.default, (ints,), "shape"),
        (aten._unique.default, (ints,), "shape"),
        (aten.equal.default, (ints, ints), "value"),
    ],
)
def test_operators_that_ask_for_values(func: Any, args: Any, what: str) -> None:
    with pytest.raises(DataDependentError) as caught:
        infer(func, args, {})
    message = str(caught.value)
    assert message.startswith(f"{func} asks for values") and f"The result's {what} depends on the data" in message
    assert f"{__file__}:" in message and "infer(func, args, {})" in message


@pytest.mark.parametrize("target", [torch.int64, torch.bool, torch.float32])
def test_in_place_operators_refuse_the_casts_that_eager_refuses(target: torch.dtype) -> None:
    others = [torch.ones(3, dtype=d) for d in (torch.bool, torch.int64, torch.float32, torch.complex64)]
    for other in others:
        x = torch.ones(3, dtype=target)
        twin = MetaTensor(x)
        try:
            x.mul_(other)
        except RuntimeError as error:
            assert "can't be cast" in str(error)
            with pytest.raises(RuntimeError) as caught:
                twin.mul_(MetaTensor(other))
            assert type(caught.value) is type(error) and str(caught.value) == str(error)
            elsewhere = [Spec.make((3,), (1,), 0, dtype, torch.device("cuda")) for dtype in (target, other.dtype)]
            with pytest.raises(TraceError, match=r"aten.mul_.Tensor gives torch\.\w+, which can't be cast to the"):
                infer(aten.mul_.Tensor, tuple(elsewhere), {})
        else:
            assert twin.mul_(MetaTensor(other)) is twin


@pytest.fixture(scope="module")
def library() -> Iterator[None]:
    with torch.library._scoped_library("sa_infer_test", "DEF") as lib:
        lib.define("pairs(Tensor x, int times) -> (Tensor, Tensor)")
        lib.impl("pairs", lambda x, times: (x.repeat(times), x.sum()), "CPU")
        yield


def test_an_operator_without_shape_rule_says_what_to_write(library: None) -> None:
    pairs = torch.ops.sa_infer_test.pairs
    x = leaf(3, dtype=torch.float32)
    with pytest.raises(ShapeRuleError) as caught:
        pairs(x, 2)
    message = str(caught.value)
    assert message.startswith("sa_infer_test.pairs.default has no rule that tells the shape of its result")
    assert "sa_infer_test::pairs(Tensor x, int times) -> (Tensor, Tensor)" in message
    assert f"{__file__}:" in message and "pairs(x, 2)" in message
    assert "@subclass_aot.register_meta(torch.ops.sa_infer_test.pairs.default)\n      def _(x, times):" in message
    assert isinstance(caught.value, NotImplementedError)

    @sa.register_meta(pairs)
    def _(x: torch.Tensor, times: int) -> Any:
        return x.new_empty(x.numel() * times), x.new_empty(())

    first, second = pairs(x, 2)
    assert first.shape == (6,) and second.shape == ()
    real = torch.arange(3.0)
    for a, b in zip(sa.aot_compile(lambda x: pairs(x, 2))(real), pairs(real, 2), strict=True):
        assert torch.equal(a, b)

    @sa.register_meta(pairs.default)
    def _(x: torch.Tensor, times: int) -> Any:
        return x.new_empty(0), x.new_empty(())

    assert pairs(x, 2)[0].shape == (0,), "a rule registered later goes before, and the cache forgets"


@pytest.mark.parametrize("size", [3, 0])
def test_out_of_an_operator_without_a_shape_function(size: int) -> None:
    """It is of the size of new results: torch knows the shape of `geqrf` and `histogram`, not that of their `out=`."""
    x, a, tau = Spec.make((3, 3), (3, 1)), Spec.make((size, size), (size, 1)), Spec.make((size,), (1,))
    assert infer(aten.geqrf.a, (x,), {"a": a, "tau": tau})[1].size == (3,)

    def program(x: torch.Tensor, counts: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        torch.histogram(x, 4, out=(counts, edges))
        return counts * 1

    given = torch.rand(8), torch.zeros(4), torch.zeros(5)
    expected = torch.histogram(given[0], 4)
    assert torch.equal(sa.aot_compile(program)(*given), expected.hist) and torch.equal(given[2], expected.bin_edges)
