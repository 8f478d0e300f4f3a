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

from subclass_aot import TwoTensor
from subclass_aot.base import _torch
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.kit.wrapper.serve import kernels
from subclass_aot.kit.wrapper.serve.kernel_operators import OPERATORS
from tests.native.both_ways import served, tensors_in
from tests.torches import TORCH

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


def program(
    call: Callable[..., Any], sample: Any, wrap: Callable[[int, torch.Tensor], Any], writes: bool = False
) -> Any:
    """What an operator gives for a sample, the gradients, and the inputs afterwards; leaves are not written."""
    numbers = itertools.count()

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x.detach().clone() if isinstance(x, torch.Tensor) else x
        return wrap(next(numbers), x.detach().clone()).requires_grad_(x.requires_grad and not writes)

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
        for call in filter(None, (op.op, op.inplace_variant)):
            writes = call is op.inplace_variant
            try:
                run = functools.partial(program, call, sample, WAYS[way], writes)
                served(run, values=op.name not in UNINITIALIZED)
            except AssertionError as error:
                differ.append((op.name, str(error)[:300]))
    assert not differ


def whole(x: Any) -> Any:
    return x.to(torch.int32)


def truth(x: Any) -> torch.Tensor:
    return torch.tensor([True, False, True])


OTHERS: dict[str, Callable[[Any], Any]] = {
    "aten::all.dim": lambda x: x.all(0),
    "aten::bitwise_or.Tensor": lambda x: whole(x) | whole(x + 3),
    "aten::bitwise_xor.Tensor": lambda x: whole(x) ^ whole(x + 3),
    "aten::clamp": lambda x: x.clamp(-0.5, 0.5),
    "aten::clamp_max": lambda x: x.clamp_max(0.5),
    "aten::clamp_max_": lambda x: (x.clamp_max_(0.5), x),
    "aten::div.Scalar_mode": lambda x: torch.ops.aten.div.Scalar_mode(x, 2, rounding_mode="floor"),
    "aten::fill_.Tensor": lambda x: (x.fill_(torch.tensor(2.0)), x),
    "aten::fmod.Scalar": lambda x: x.fmod(2),
    "aten::hardtanh_": lambda x: (torch.nn.functional.hardtanh_(x), x),
    "aten::lerp.Tensor": lambda x: torch.lerp(x, x * 2, torch.tensor(0.3)),
    "aten::lift_fresh": lambda x: torch.ops.aten.lift_fresh(x),
    "aten::masked_fill.Tensor": lambda x: x.masked_fill(truth(x), torch.tensor(2.0)),
    "aten::masked_fill_.Tensor": lambda x: (x.masked_fill_(truth(x), torch.tensor(2.0)), x),
    "aten::native_dropout": lambda x: torch.ops.aten.native_dropout(x, 0.5, True),
    "aten::prod.dim_int": lambda x: x.prod(0),
    "aten::rand_like": lambda x: torch.rand_like(x),
    "aten::remainder.Scalar": lambda x: x.remainder(2),
    "aten::sub_.Scalar": lambda x: (torch.ops.aten.sub_.Scalar(x, 2), x),
}
"""Calls of operators that no first sample leads to."""


@pytest.mark.parametrize("name", sorted(OTHERS.keys() & kernels.INSTALLED))
def test_operators_without_samples(name: str) -> None:
    assert served(lambda: OTHERS[name](flat(torch.linspace(-2, 3, 3))))[name]


def test_each_operator_is_reached(samples: Any) -> None:
    hits: Counter[str] = Counter()
    for op, sample in samples("first"):
        for call in filter(None, (op.op, op.inplace_variant)):
            before = kernels.hits()
            for _ in range(2):
                try:
                    program(call, sample, WAYS["flat"], call is op.inplace_variant)
                except Exception:  # noqa: BLE001 - what eager refuses is compared above
                    break
            hits += kernels.hits() - before
    assert kernels.INSTALLED - hits.keys() <= OTHERS.keys()


def test_this_torch_has_them_all() -> None:
    assert len(set(OPERATORS)) == len(OPERATORS)
    known = {func.name() for func in _torch.operators.registered_operators()}
    assert set(OPERATORS) & known == kernels.INSTALLED
    if TORCH == (2, 13):
        assert set(OPERATORS) == kernels.INSTALLED
