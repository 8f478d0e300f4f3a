"""Every operator of torch's `op_db`, in several layouts: the metadata of its results, real and without data."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import optree
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from subclass_aot import MetaTensor, Spec
from subclass_aot.errors import DataDependentError, TraceError
from tests.torches import TORCH

pytestmark = pytest.mark.filterwarnings("ignore")


def reversed_dims(x: torch.Tensor) -> torch.Tensor:
    return x.permute(tuple(reversed(range(x.dim()))))


LAYOUTS: dict[str, Any] = {
    "packed": lambda x: x.contiguous(),
    "transposed": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x,
    "column-major": lambda x: reversed_dims(reversed_dims(x).contiguous()),
    "steps": lambda x: x.repeat_interleave(2, -1)[..., ::2] if x.dim() else x,
}
# Where torch's shape function refuses what the CPU kernel takes, or a value is read without asking through an operator.
REFUSED = {
    "sparse.sampled_addmm": "sparse arguments",
    "sparse.mm.reduce": "sparse arguments",
    "to_sparse": "sparse result",
    "torch._scaled_mm_v2": "CUDA's demand for a row-major first argument",
    "tensor_split": "reads a tensor of indices",
}
REFUSED_BY = {"torch._scaled_mm_v2": {(2, 12), (2, 13)}}
"""The torches that refuse an operator, where not all do."""


def is_dense(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.layout is torch.strided and not x.is_conj() and not x.is_neg()


def facts(spec: Spec) -> Any:
    """What can be seen of a spec: no strides where there is nothing to step to."""
    steps = [s for n, s in zip(spec.size, spec.stride, strict=True) if n > 1] if spec.numel else []
    return spec.size, spec.dtype, spec.device, steps


def twin_of(x: Any) -> Any:
    return MetaTensor.like(x) if is_dense(x) else x


def check(op: Any, layout: str) -> None:
    sample: Any = next(iter(op.sample_inputs("cpu", torch.float32)))

    def laid_out(x: Any) -> Any:
        return LAYOUTS[layout](x.detach()).requires_grad_(x.requires_grad) if is_dense(x) else x

    tree: Any = (sample.input, sample.args, sample.kwargs)
    first, args, kwargs = tree = optree.tree_map(laid_out, tree, none_is_leaf=True)
    twin, twin_args, twin_kwargs = optree.tree_map(twin_of, tree, none_is_leaf=True)
    try:
        real = op.op(first, *args, **kwargs)
    except RuntimeError:  # the kernel refuses this layout
        return
    try:
        told = op.op(twin, *twin_args, **twin_kwargs)
    except DataDependentError:
        return
    for x, y in zip(optree.tree_leaves(real), optree.tree_leaves(told), strict=True):
        if type(y) is MetaTensor:
            assert facts(Spec.of(x.resolve_conj().resolve_neg())) == facts(y.spec), op.full_name
            assert x.requires_grad == y.requires_grad, op.full_name


CHECKED = [
    op
    for op in op_db
    if torch.float32 in op.dtypes and op.full_name not in REFUSED and not op.name.startswith("jiterator")
]
PARTS = 20  # many tests, so that the file is among the first that are run: it takes minutes


def test_all_of_op_db_is_checked() -> None:
    assert len(CHECKED) > 600


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_metadata_of_results(layout: str, part: int) -> None:
    with ThreadPoolExecutor(1) as thread:  # samples look at the whole stack, which is a deep one here
        for _ in thread.map(lambda op: check(op, layout), CHECKED[part::PARTS]):
            pass


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused(name: str) -> None:
    op = next(op for op in op_db if op.full_name == name)
    refused = TORCH in REFUSED_BY.get(name, {TORCH})
    with pytest.raises((TraceError, RuntimeError)) if refused else nullcontext():
        for layout in LAYOUTS:
            check(op, layout)
