"""Every operator of torch's `op_db`, in several layouts: the metadata of its results, real and without data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import optree
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from subclass_aot import MetaTensor, Spec
from subclass_aot.errors import DataDependentError, MutationError, TraceError
from tests.device import DEVICE
from tests.meta.nodes import runs, wrong_nodes
from tests.torches import TORCH

pytestmark = pytest.mark.filterwarnings("ignore")


def reversed_dims(x: torch.Tensor) -> torch.Tensor:
    return x.permute(tuple(reversed(range(x.dim()))))


def channels_last(x: torch.Tensor) -> torch.Tensor:
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    return x.contiguous() if layout is None else x.contiguous(memory_format=layout)


def one(dim: int, layout: str) -> Any:
    """Of a dim only the first place, in a layout."""
    return lambda x: LAYOUTS[layout](x.narrow(dim, 0, 1) if x.dim() > dim and x.shape[dim] > 1 else x)


def narrowed(x: torch.Tensor) -> torch.Tensor:
    """A part of a larger tensor, which begins behind its beginning."""
    return torch.cat([x, x], -1)[..., x.shape[-1] :] if x.dim() else x


def expanded(x: torch.Tensor) -> torch.Tensor:
    """The first dim has one place in memory."""
    return x[:1].expand(x.shape) if x.dim() and x.numel() else x


LAYOUTS: dict[str, Any] = {
    "packed": lambda x: x.contiguous(),
    "transposed": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "channels last": lambda x: channels_last(x),
    "column-major": lambda x: reversed_dims(reversed_dims(x).contiguous()),
    "steps": lambda x: x.repeat_interleave(2, -1)[..., ::2] if x.dim() else x,
    "narrowed": lambda x: narrowed(x),
    "expanded": lambda x: expanded(x),
}
ONES = {f"one in dim {dim}, {layout}": one(dim, layout) for dim in range(4) for layout in [*LAYOUTS][:4]}
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
    sample: Any = next(iter(op.sample_inputs(DEVICE, torch.float32)))

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
            assert facts(Spec.of(x.resolve_conj().resolve_neg())) == facts(y.meta_spec), op.full_name
            assert x.requires_grad == y.requires_grad, op.full_name


CHECKED = [
    op
    for op in op_db
    if torch.float32 in op.dtypes and op.full_name not in REFUSED and not op.name.startswith("jiterator")
]
PARTS = 20  # many tests, so that the file is among the first that are run: it takes minutes


def test_all_of_op_db_is_checked() -> None:
    assert len(CHECKED) > 600


def in_thread(work: Callable[[], object]) -> None:
    """Runs something with a short stack: samples read all of it."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(work).result()


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_metadata_of_results(layout: str, part: int) -> None:
    in_thread(lambda: [check(op, layout) for op in CHECKED[part::PARTS]])


NOT_TOLD = {
    "linalg.lstsq": "whether there are residuals depends on the data",
    "linalg.lstsq.grad_oriented": "as linalg.lstsq",
}
"""Operators that are not compiled, each with the reason; `tests/op_db/failures.toml` has them, too."""
SIZES_BY_DATA = ("aten.index.Tensor", "aten._unique.default")
"""Operators of backward whose results have sizes by data: of what a mask puts, and of what an embedding renorms."""
OF_MEMORY = (
    "as_strided",
    "batch_norm",
    "ctc_loss",
    "native_group_norm",
    "ormqr",
    "householder",
    "geqrf",
    "lu_",
    "ldl",
    "segment_reduce",
)
"""Operators whose samples have numbers that fit the sizes, or the memory, of their tensors: no size becomes one."""


def check_nodes(
    layouts: Iterable[str],
    part: int,
    dtype: torch.dtype = torch.float32,
    samples: int = 1,
    dynamic: bool = False,
) -> None:
    """Compares each node of compiled operators with the kernel: size, stride, offset and dtype.

    Args:
        layouts: Those of the tensors of a sample, from `LAYOUTS` and `ONES`.
        part: Which operators, of `PARTS` parts.
        dtype: The dtype of the samples.
        samples: How many samples of each operator.
        dynamic: Whether sizes are symbols.
    """
    found, tried = [], 0
    for op in CHECKED[part::PARTS]:
        if dtype not in op.supported_dtypes(torch.device(DEVICE).type) or op.full_name in NOT_TOLD:
            continue
        drawn = op.sample_inputs(DEVICE, dtype, requires_grad=op.supports_autograd and dtype.is_floating_point)
        for sample, layout in itertools.product(itertools.islice(drawn, samples), layouts):
            if layout in ONES and any(name in op.full_name for name in OF_MEMORY):
                continue
            change = {**LAYOUTS, **ONES}[layout]

            def laid_out(x: Any, change: Any = change) -> Any:
                return change(x.detach()).detach().requires_grad_(x.requires_grad) if is_dense(x) else x

            tree: Any = ([sample.input, *sample.args], sample.kwargs)
            args, kwargs = optree.tree_map(laid_out, tree, none_is_leaf=True)
            if runs(op.op, args, kwargs):
                args, kwargs = optree.tree_map(laid_out, tree, none_is_leaf=True)  # some are written
                try:
                    wrong = wrong_nodes(op.op, args, kwargs, dynamic)
                except DataDependentError as error:
                    if str(error.operator) not in SIZES_BY_DATA:
                        raise
                    continue
                except MutationError:  # what is written has one place for several elements
                    assert layout == "expanded"
                    continue
                found += [f"{op.full_name}, {layout}: {what}" for what in wrong]
                tried += 1
    assert not found
    assert tried > (20 if dtype.is_floating_point else 5)


SHORT = ("channels last",)
"""The layouts that `make test` has time for."""


@pytest.mark.parametrize("part", range(PARTS))
def test_nodes_are_as_their_kernels_have_them(part: int) -> None:
    in_thread(lambda: check_nodes(SHORT, part))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64])
def test_nodes_in_all_layouts(dtype: torch.dtype, part: int) -> None:
    in_thread(lambda: check_nodes([*LAYOUTS, *ONES], part, dtype, samples=2))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_nodes_with_symbols(part: int) -> None:
    in_thread(lambda: check_nodes(["transposed", "narrowed", "channels last"], part, dynamic=True))


PADS: list[tuple[int, ...]] = [
    (0, -1, 0, 0), (0, 0, 0, -1), (-1, 2, 0, 0), (2, 0, 0, -1), (0, 0, 0, 0), (0, 0, -1, 0, 0, -1), (0, 0, 0, 0, -1, 2)
]  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("pads", PADS[:2])
@pytest.mark.parametrize("dynamic", [False, True])
def test_some_padding_of_each_sign(pads: tuple[int, ...], dynamic: bool) -> None:
    check_padding("transposed", pads, dynamic)


@pytest.mark.long
@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_padding_of_each_sign(layout: str, pads: tuple[int, ...], dynamic: bool) -> None:
    check_padding(layout, pads, dynamic)


@pytest.mark.parametrize("dims", [(0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("wanted", [4, 6, 8])
@pytest.mark.parametrize("dynamic", [False, True])
def test_padding_to_a_size(dims: tuple[int, ...], wanted: int, dynamic: bool) -> None:
    """The sign of a padding that is a symbol is that of the call."""
    x = torch.rand([(5, 7, 6)[dims.index(d)] for d in range(3)]).permute(dims).detach().requires_grad_()

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (0, wanted - x.shape[2])).reshape(x.shape[0], -1) * 2

    assert not wrong_nodes(program, [x], dynamic=dynamic)


def check_padding(layout: str, pads: tuple[int, ...], dynamic: bool) -> None:
    x = LAYOUTS[layout](torch.rand(2, 5, 6, 7)).detach().requires_grad_()
    assert not wrong_nodes(lambda x: torch.nn.functional.pad(x, pads) * 2, [x], dynamic=dynamic)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused(name: str) -> None:
    op = next(op for op in op_db if op.full_name == name)
    refused = TORCH in REFUSED_BY.get(name, {TORCH})
    with pytest.raises((TraceError, RuntimeError)) if refused else nullcontext():
        for layout in LAYOUTS:
            check(op, layout)
