"""The check of what a rule returned that has a cache, beside the one that asks each time."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, TwoTensor, _native
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.kit.wrapper.serve import kernels
from subclass_aot.kit.wrapper.serve.expected_results import ExpectedResults
from tests.native.both_ways import in_threads

aten: Any = torch.ops.aten

accelerator: Any = _native.accelerator("kernels")

pytestmark = pytest.mark.skipif(
    accelerator is None, reason="the accelerator is optional: without it there is only Python"
)


class Asked:
    """Says what `ExpectedResults` says, and counts."""

    def __init__(self, func: Any, cls: Any = None) -> None:
        self.times, self.expected = 0, ExpectedResults(func)
        self.accepted = accelerator.Accepted(self.ask, cls, kernels.is_read_plainly)

    def ask(self, out: Any, args: Any, kwargs: Any) -> str:
        self.times += 1
        return self.expected.mismatch(out, args, kwargs)

    def __call__(self, out: Any, *args: Any, **kwargs: Any) -> str:
        """Checks both ways, twice, and says how often it was asked."""
        expected = self.expected.mismatch(out, args, kwargs)
        for _ in range(2):
            assert self.accepted(out, args, kwargs) == expected
        return expected


def test_what_looks_the_same_is_not_asked_about_again() -> None:
    check, x, y = Asked(aten.mm.default), torch.ones(2, 3), torch.ones(3, 4)
    for _ in range(3):
        assert check(torch.ones(2, 4), x, y) == ""
    assert check.times == 1
    assert check(torch.ones(2, 4).t().contiguous().t(), x, y.clone()) == ""
    assert check.times == 2  # of other strides


def test_each_fact_counts() -> None:
    """Every pair of a result and arguments, in an order in which each has been cached before the others come."""
    check = Asked(aten.add.Tensor)
    many = [
        torch.ones(2, 3),
        torch.ones(3, 2).t(),
        torch.ones(2, 3).half(),
        torch.ones(2, 3, dtype=torch.int64),
        torch.ones(3),
        torch.ones(1, 3),
        torch.ones(2, 3, dtype=torch.complex64).conj(),
        torch.ones(2, 3).to_sparse(),
        torch.ones(2, 3, device="meta"),
        2,
        2.0,
        True,
    ]
    results = [x for x in many if isinstance(x, torch.Tensor) and x.layout is torch.strided]
    tried = [check(out, x, y) for x, y in itertools.product(many[:9], many) for out in results if out is not x]
    assert "" in tried and len(set(tried)) > 5


def test_numbers_lists_and_what_is_neither() -> None:
    view, x = Asked(aten.sum.dim_IntList), torch.ones(2, 3)
    for dims, out in itertools.product(
        ([0], [1], [0, 1], [1, 0], [-1], (1,), None, []), (x[0], x[:, 0], x[0, 0], x[:1])
    ):
        view(out, x, dims)
        for keep in (False, True, 0, 1):
            view(out, x, dims, keep)
        view(out, x, dims, dtype=torch.float64)
    assert view(torch.ones(2).double(), x, [1], dtype=torch.float64) == ""
    cat = Asked(aten.cat.default)
    assert cat(torch.ones(4), [torch.ones(2), torch.ones(2)]) == ""
    assert cat(torch.ones(4), [torch.ones(2), torch.ones(3)]) == "a tensor of size [5] and torch.float32"
    full = Asked(aten.full.default)
    for value in (1, 1.0, True, 2**70, float("nan"), 0.0, -0.0, 1j):
        for out in (
            torch.ones(2),
            torch.ones(2, dtype=torch.int64),
            torch.ones(2, dtype=torch.bool),
            torch.ones(2) * 1j,
        ):
            full(out, [2], value)


def test_results_that_are_no_tensor_of_ours() -> None:
    check, x = Asked(aten.neg.default), torch.ones(2)
    for out in (None, 3, [x], (x, x), "text", torch.nn.Parameter(torch.ones(3)), torch.ones(3), x):
        check(out, x)
    assert check.times == 8 * 2  # each time


def test_wrappers_of_the_class_and_others() -> None:
    weight = Int8Weight.from_float(torch.randn(4, 8))
    for cls, asked in ((Int8Weight, 1), (None, 4), (TwoTensor, 4)):
        check = Asked(aten.mm.default, cls)
        for _ in range(2):
            assert check(torch.ones(2, 8), torch.ones(2, 4), weight) == ""
        assert check.times == asked
        assert check(torch.ones(2, 8), torch.ones(2, 4).half(), weight.t()) == ""  # refused on "meta": anything will do
    with pytest.raises(TypeError, match="a class of wrappers"):
        accelerator.Accepted(print, int, kernels.is_read_plainly)
    with pytest.raises(TypeError, match="a result, a tuple and a dict"):
        accelerator.Accepted(print, None, kernels.is_read_plainly)(1, 2)


def test_a_class_that_shows_other_sizes_later() -> None:
    class Shown(WrapperTensor, fallback="each"):
        only: torch.Tensor

    check, x = Asked(aten.neg.default, Shown), Shown(torch.ones(2))
    assert check(torch.ones(2), x) == "" and check.times == 1
    Shown.shape = property(lambda self: torch.Size([2]))  # type: ignore[assignment, misc]
    assert check(torch.ones(2), x) == "" and check.times == 3  # both times


def test_a_class_that_has_changed_is_looked_at_once_more() -> None:
    """As every trace changes `Tensor`, whose classes all have another version then."""

    class Shown(WrapperTensor, fallback="each"):
        only: torch.Tensor

    check, x = Asked(aten.neg.default, Shown), Shown(torch.ones(2))
    assert check(torch.ones(2), x) == "" and check.times == 1
    for changed in (Shown, torch.Tensor):
        changed.told = 1  # type: ignore[union-attr]
        del changed.told  # type: ignore[union-attr]
        assert check(torch.ones(2), x) == "" and check.times == 1


def test_a_cache_is_left_alone_for_a_while_and_not_for_good() -> None:
    check = Asked(aten.neg.default)
    for n in range(400):
        assert check.accepted(torch.ones(n), (torch.ones(n),), {}) == ""
    out, args = torch.ones(2), (torch.ones(2),)
    for _ in range(5000):
        assert check.accepted(out, args, {}) == ""
    before = check.times
    assert check(out, *args) == "" and check.times == before


def test_more_than_is_cached() -> None:
    check = Asked(aten.neg.default)
    for n in (*range(400), *range(50)):
        assert check(torch.ones(n), torch.ones(n)) == ""
        assert check(torch.ones(n + 1), torch.ones(n)) == f"a tensor of size [{n}] and torch.float32"


def test_errors_and_threads_and_memory() -> None:
    def fail(*_: object) -> str:
        raise KeyError("mine")

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            accelerator.Accepted(fail, None, None)(torch.ones(1), (torch.ones(1),), {})
    check = Asked(aten.neg.default)
    in_threads(lambda: [check(torch.ones(n % 40), torch.ones(n % 40)) for n in range(300)])

    class Held:
        def __call__(self, *_: object) -> str:
            return ""

    held = Held()
    held.cycle = accelerator.Accepted(held, None, None)  # type: ignore[attr-defined]
    gone = weakref.ref(held)
    del held
    gc.collect()
    assert gone() is None
