"""Every operator of torch on wrapper tensors: `aot_compile` against eager, forward and gradients.

Of each operator in torch's `op_db` that has float32 samples, the first sample is taken, with every float tensor in it
replaced by a torch `TwoTensor` whose second tensor differs from the first. `failures.toml` lists the operators that do
not compile, with the reason; the list is exact in both directions.

What counts: an operator with at least one wrapper among its inputs, that eager can run on wrappers, and whose values
are determined (`empty_like` and its kin are compared by everything but their values, and not counted).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optree
import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.two_tensor import TwoTensor

pytestmark = pytest.mark.filterwarnings("ignore")

FAILURES: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "failures.toml").read_text())
LISTED = {name: kind for kind, names in FAILURES.items() for name in names}
UNINITIALIZED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
BASELINE = 595
"""What torch's `aot_function` passes of the operators counted here."""


@dataclass(frozen=True)
class Case:
    """One operator on one sample."""

    name: str
    op: Any
    sample: Any

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """New tensors each time, since some operators write into them."""
        tree: Any = ((self.sample.input, *self.sample.args), dict(self.sample.kwargs))
        args, kwargs = optree.tree_map(_wrapped, tree, none_is_leaf=True)
        return args, kwargs

    @property
    def wraps(self) -> bool:
        """Whether a wrapper is among the inputs."""
        return any(type(x) is TwoTensor for x in _tensors(self.arguments()))


def cases() -> Iterator[Case]:
    """The first float32 sample of every operator that has one; gradients where the operator has any."""
    for op in op_db:
        if torch.float32 in op.dtypes and not op.name.startswith("jiterator"):  # these need a GPU
            sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)))
            yield Case(f"{op.name}.{op.variant_test_name}".rstrip("."), op, sample)


@dataclass(frozen=True)
class Outcome:
    """What a function gave: results, gradients of inputs, and the inputs afterwards."""

    results: list[Any]
    gradients: list[torch.Tensor | None]
    inputs: list[torch.Tensor]


def run(fn: Callable[..., Any], args: Any, kwargs: Any) -> Outcome:
    """Runs `fn`, and a backward through all of its results."""
    torch.manual_seed(0)
    inputs = _tensors((args, kwargs))
    results = optree.tree_leaves(fn(*args, **kwargs))
    differentiable = [x for x in _tensors(results) if x.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    gradients: list[torch.Tensor | None] = []
    if differentiable and wanted:
        tangents = [_tangent(x) for x in differentiable]
        gradients = list(torch.autograd.grad(differentiable, wanted, tangents, allow_unused=True))
    return Outcome(results, gradients, inputs)


def compare(name: str, compiled: Outcome, eager: Outcome) -> None:
    """Raises AssertionError where the two differ."""
    values = name not in UNINITIALIZED
    for part in ("results", "gradients", "inputs"):
        ours, theirs = getattr(compiled, part), getattr(eager, part)
        assert len(ours) == len(theirs), f"{part}: {len(ours)} where eager has {len(theirs)}"
        for a, b in zip(ours, theirs, strict=True):
            _compare(a, b, values)


def _compare(ours: Any, theirs: Any, values: bool) -> None:
    assert type(ours) is type(theirs), f"{type(ours).__name__} where eager has {type(theirs).__name__}"
    if not isinstance(ours, torch.Tensor):
        assert ours == theirs or ours != ours, f"{ours} where eager has {theirs}"
        return
    for fact in ("shape", "dtype", "device", "requires_grad"):
        assert getattr(ours, fact) == getattr(theirs, fact), f"{fact} {getattr(ours, fact)}: {getattr(theirs, fact)}"
    if type(ours) is TwoTensor:
        _compare(ours.a, theirs.a, values)
        _compare(ours.b, theirs.b, values)
    elif values:
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def _wrapped(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    values = x.detach().clone()
    if not x.is_floating_point():
        return values
    return TwoTensor(values, x.detach().clone().mul_(0.75)).requires_grad_(x.requires_grad)


def _tangent(result: torch.Tensor) -> torch.Tensor:
    if type(result) is TwoTensor:
        return TwoTensor(torch.ones_like(result.a), torch.full_like(result.b, 2))
    return torch.ones_like(result)


def _tensors(tree: Any) -> list[Any]:
    return [x for x in optree.tree_leaves(tree) if isinstance(x, torch.Tensor)]
