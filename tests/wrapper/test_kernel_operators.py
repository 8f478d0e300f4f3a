"""Every operator with a kernel does on samples of torch's `op_db` what the generated code does."""

from __future__ import annotations

import collections
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import optree
import pytest
import torch
from torch.testing._internal import common_methods_invocations, common_utils

from subclass_aot import TwoTensor, _torch
from subclass_aot.wrapper import WrapperTensor, kernels
from subclass_aot.wrapper.kernel_operators import OPERATORS
from tests.native.twins import served, tensors_in

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not kernels.INSTALLED, reason="the accelerator is optional: without it there is only Python"),
]
PARTS = 8
UNINITIALIZED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


class Named(WrapperTensor, fallback="each"):
    """Has context, and stands for something."""

    left: torch.Tensor
    label: str
    right: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.left


def flat(x: torch.Tensor) -> Any:
    return TwoTensor(x, x * 0.75)


def named(x: torch.Tensor) -> Any:
    return Named(x, "a", x * 0.75)


def nested(x: torch.Tensor) -> Any:
    return TwoTensor(flat(x), flat(x * 0.5))


WAYS: dict[str, Callable[[int, torch.Tensor], Any]] = {
    "flat": lambda n, x: flat(x),
    "beside dense": lambda n, x: x if n % 2 else flat(x),
    "named": lambda n, x: named(x),
    "nested, dense first": lambda n, x: nested(x) if n % 2 else x,
}


@pytest.fixture(scope="module")
def samples() -> Iterator[Callable[[str], list[tuple[Any, Any]]]]:
    """The first or the last float32 sample of each operator. op_db sets seeds inside some functions; here none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_utils, "extract_test_fn", lambda: None)
        patch.setattr(common_methods_invocations, "wrapper_set_seed", lambda op, *args, **kwargs: op(*args, **kwargs))

        @functools.cache
        def take(which: str) -> list[tuple[Any, Any]]:
            found = []
            for op in common_methods_invocations.op_db:
                if torch.float32 in op.dtypes and not op.name.startswith("jiterator"):  # these run on GPUs only
                    each = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
                    found.append((op, next(iter(each)) if which == "first" else collections.deque(each, maxlen=1)[0]))
            return found

        yield take


def program(call: Callable[..., Any], sample: Any, wrap: Callable[[int, torch.Tensor], Any]) -> Any:
    """What an operator gives for a sample, the gradients, and the inputs afterwards."""
    numbers = itertools.count()

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x.detach().clone() if isinstance(x, torch.Tensor) else x
        return wrap(next(numbers), x.detach().clone()).requires_grad_(x.requires_grad)

    tree: Any = ((sample.input, *sample.args), dict(sample.kwargs))
    args, kwargs = optree.tree_map(copy, tree, none_is_leaf=True)
    inputs = tensors_in((args, kwargs))
    results = optree.tree_leaves(call(*args, **kwargs))
    ends = [x for x in tensors_in(results) if x.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    gradients: Any = []
    if ends and wanted:
        tangents = [torch.ones_like(x.detach()) for x in ends]
        gradients = torch.autograd.grad(ends, wanted, tangents, allow_unused=True)
    return results, list(gradients), inputs


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "which,part",
    [("first", part) for part in range(PARTS)]
    + [pytest.param("last", part, marks=pytest.mark.long) for part in range(PARTS)],
)
def test_samples_give_the_same_as_in_python(samples: Any, which: str, part: int, way: str) -> None:
    differ = []
    for op, sample in samples(which)[part::PARTS]:
        for call in (op.op, op.inplace_variant):
            if call is None:
                continue
            try:
                served(lambda: program(call, sample, WAYS[way]), values=op.name not in UNINITIALIZED)
            except AssertionError as error:
                differ.append((op.name, str(error)[:300]))
    assert not differ


NEED_ARGUMENTS: dict[str, Callable[[Any], Any]] = {}
"""Calls of operators that no sample leads to, by name."""


def test_each_operator_is_reached(samples: Any) -> None:
    hits: Counter[str] = Counter()
    for op, sample in samples("first"):
        for call in (op.op, op.inplace_variant):
            before = kernels.hits()
            for _ in range(2):
                try:
                    program(call, sample, WAYS["flat"])
                except Exception:  # noqa: BLE001 - what eager refuses is compared above
                    break
            hits += kernels.hits() - before
    missing = sorted(kernels.INSTALLED - hits.keys() - NEED_ARGUMENTS.keys())
    assert not missing
