"""An operator that has a kernel runs as one: no graph of `op_db` has more nodes than eager mode has kernels."""

from __future__ import annotations

import itertools
from typing import Any

import optree
import pytest
import torch

from subclass_aot.errors import DataDependentError
from tests.meta import kernels
from tests.meta.kernels import more_nodes
from tests.meta.nodes import runs
from tests.meta.test_op_db import CHECKED, NOT_TOLD, PARTS, in_thread, is_dense

pytestmark = pytest.mark.filterwarnings("ignore")

VALUES = (
    "what a call reads of values is a result of its graph, and the kernel of eager mode computes the same parts inside"
)
CONJUGATES = "eager mode computes conjugates where they are read, below what is counted; the gradient is one, too"
MORE = {
    "allclose": VALUES,
    "equal": VALUES,
    "nn.functional.ctc_loss": VALUES,
    "masked_select": "the number of results is that of nonzero",
    "index_put": "how many elements a mask selects, backward needs to know, and nonzero says",
    "_batch_norm_with_update": "the statistics are written, and torch's form without writes returns them",
    **dict.fromkeys(("fft.hfft", "fft.ifft", "fft.ihfft", "linalg.eig"), CONJUGATES),
}
"""Operators with more nodes, each with the reason."""


def copied(x: Any) -> Any:
    return x.detach().clone().requires_grad_(x.requires_grad) if is_dense(x) else x


def found(op: Any) -> list[str]:
    """What two samples of an operator have more of."""
    every = []
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    for sample in itertools.islice(samples, 2):
        tree: Any = ([sample.input, *sample.args], sample.kwargs)
        if runs(op.op, *optree.tree_map(copied, tree, none_is_leaf=True)):
            try:
                every += [more_nodes(op.op, *optree.tree_map(copied, tree, none_is_leaf=True))]
            except DataDependentError:
                continue
    return [more for more in every if more]


def check(part: int) -> None:
    operators = [op for op in CHECKED[part::PARTS] if op.full_name not in NOT_TOLD]
    more = {op.full_name: why for op in operators if (why := found(op))}
    assert more.keys() == {op.full_name for op in operators} & MORE.keys(), more


@pytest.mark.parametrize("part", range(PARTS))
def test_no_more_nodes_than_kernels(part: int) -> None:
    in_thread(lambda: check(part))


def test_a_composite_form_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep can fail: three operators in the place of a kernel are counted."""
    x = torch.randn(3, requires_grad=True)
    assert more_nodes(torch.sigmoid, [x]) == ""
    compile_it = kernels.aot_compile
    monkeypatch.setattr(kernels, "aot_compile", lambda _, **how: compile_it(lambda x: 1 / (1 + (-x).exp()), **how))
    assert "'exp': 1" in more_nodes(torch.sigmoid, [x])
