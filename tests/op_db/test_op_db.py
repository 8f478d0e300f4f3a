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
from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import errors
from subclass_aot.compile import aot_compile

pytestmark = pytest.mark.filterwarnings("ignore")

FAILURES: dict[str, dict[str, str]] = tomllib.loads((Path(__file__).parent / "failures.toml").read_text())
UNINITIALIZED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})
COUNTED = 638
AOT_FUNCTION = 611
"""How many of these torch's `aot_function` passes in the place of `aot_compile`. (Some 595 with the seeds that op_db
sets inside functions left as they are: these it cannot carry either.)"""


@dataclass(frozen=True)
class Case:
    """One operator on one sample."""

    name: str
    op: Any
    sample: Any

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.op.op(*args, **kwargs)

    def arguments(self, wrap: Callable[[Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """New tensors each time, since some operators write into them."""
        tree: Any = ((self.sample.input, *self.sample.args), dict(self.sample.kwargs))
        args, kwargs = optree.tree_map(wrap, tree, none_is_leaf=True)
        return args, kwargs


@dataclass(frozen=True)
class Run:
    """What a function gave: results, gradients of inputs, and the inputs afterwards."""

    results: list[Any]
    gradients: list[Any]
    inputs: list[Any]


def cases() -> Iterator[Case]:
    """The first float32 sample of every operator that has one; gradients where the operator has any."""
    for op in common_methods_invocations.op_db:
        if torch.float32 in op.dtypes and not op.name.startswith("jiterator"):  # these run on GPUs only
            sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)))
            yield Case(f"{op.name}.{op.variant_test_name}".rstrip("."), op, sample)


def run(fn: Callable[..., Any], args: Any, kwargs: Any) -> Run:
    """Runs `fn`, and a backward through all of its results."""
    torch.manual_seed(0)
    inputs = tensors((args, kwargs))
    results = optree.tree_leaves(fn(*args, **kwargs))
    differentiable = [x for x in tensors(results) if x.requires_grad]
    wanted = [x for x in inputs if x.requires_grad]
    gradients: list[Any] = []
    if differentiable and wanted:
        tangents = [on_each(tangent, x) for x in differentiable]
        gradients = list(torch.autograd.grad(differentiable, wanted, tangents, allow_unused=True))
    return Run(results, gradients, inputs)


def compare(ours: Any, theirs: Any, values: bool = True) -> None:
    """Raises AssertionError where two results, or lists of them, differ."""
    assert type(ours) is type(theirs), f"{type(ours).__name__} where eager has {type(theirs).__name__}"
    if isinstance(ours, list):
        for a, b in zip(ours, theirs, strict=True):
            compare(a, b, values)
    elif isinstance(ours, torch.Tensor):
        for fact in ("shape", "dtype", "device", "requires_grad"):
            assert getattr(ours, fact) == getattr(theirs, fact), fact
        if type(ours) is TwoTensor:
            compare(ours.a, theirs.a, values)
            compare(ours.b, theirs.b, values)
        elif values:
            torch.testing.assert_close(ours, theirs, equal_nan=True)
    else:
        assert ours == theirs


def wrapped(x: Any) -> Any:
    """A float tensor as a wrapper whose inner tensors differ, others as they are."""
    if not isinstance(x, torch.Tensor):
        return x
    if not x.is_floating_point():
        return x.detach().clone()
    return TwoTensor(x.detach().clone(), x.detach().clone().mul_(0.75)).requires_grad_(x.requires_grad)


def tangent(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x) * torch.linspace(1, 2, x.numel()).view(x.shape)


def on_each(fn: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return TwoTensor(fn(x.a), fn(x.b)) if type(x) is TwoTensor else fn(x)


def tensors(tree: Any) -> list[Any]:
    return [x for x in optree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


@dataclass(frozen=True)
class Outcome:
    """How one operator fared: a table of `failures.toml`, or "" if it passes."""

    failure: str
    counted: bool
    error: str


def outcome(case: Case) -> Outcome:
    """Compares the compiled operator with eager on wrappers."""
    try:
        args, kwargs = case.arguments(wrapped)
        wraps = any(type(x) is TwoTensor for x in tensors((args, kwargs)))
        eager = run(case.call, args, kwargs)
    except Exception as error:
        return Outcome("eager_fails", False, repr(error))
    counted = wraps and case.name not in UNINITIALIZED
    try:
        compiled = run(aot_compile(case.call), *case.arguments(wrapped))
        for part in ("results", "gradients", "inputs"):
            compare(getattr(compiled, part), getattr(eager, part), values=case.name not in UNINITIALIZED)
    except errors.DataDependentError as error:
        return Outcome("data_dependent", counted, str(error))
    except AssertionError as error:
        return Outcome("eager_is_wrong" if is_right(case) else "differs", counted, str(error))
    except Exception as error:
        return Outcome("raises", counted, repr(error))
    return Outcome("", counted, "")


def is_right(case: Case) -> bool:
    """Whether the compiled operator does on each inner tensor what eager does on dense ones.

    The gradient is that of absolute values: eigenvectors, say, are known up to a factor, and a loss must not see it.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return [x.abs() for x in tensors(case.call(*args, **kwargs))]

    compiled = run(aot_compile(call), *case.arguments(wrapped))
    for inner in ("a", "b"):

        def unwrapped(x: Any, inner: str = inner) -> Any:
            x = wrapped(x)
            return getattr(x, inner).requires_grad_(x.requires_grad) if type(x) is TwoTensor else x

        dense = run(call, *case.arguments(unwrapped))
        for part in ("results", "gradients"):
            for ours, theirs in zip(getattr(compiled, part), getattr(dense, part), strict=True):
                if not torch.allclose(getattr(ours, inner).detach(), theirs.detach(), rtol=1e-4, atol=1e-5):
                    return False
    return True


@pytest.fixture(scope="module")
def outcomes() -> Iterator[dict[str, Outcome]]:
    """Runs them all.

    op_db sets a seed inside some functions, which no trace could repeat; here `run` sets it outside. And it looks
    through the whole stack for a unittest each time it makes a sample, which takes longer than everything else.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common_utils, "extract_test_fn", lambda: None)
        patch.setattr(common_methods_invocations, "wrapper_set_seed", lambda op, *args, **kwargs: op(*args, **kwargs))
        yield {case.name: outcome(case) for case in cases()}


def test_the_list_of_failures_is_exact(outcomes: dict[str, Outcome]) -> None:
    listed = {(name, table) for table, names in FAILURES.items() for name in names}
    failing = {(name, o.failure) for name, o in outcomes.items() if o.failure}
    details = "\n".join(f"{name}: {outcomes[name].error}" for name, _ in failing - listed)
    assert failing == listed, f"unlisted failures:\n{details}\nlisted, but not so: {sorted(listed - failing)}"


def test_data_dependence_is_explained(outcomes: dict[str, Outcome]) -> None:
    for name in FAILURES["data_dependent"]:
        error = outcomes[name].error
        assert "a traced tensor has none" in error and f"{Path(__file__).name}:" in error, error


def test_more_operators_pass_than_in_torch(outcomes: dict[str, Outcome], capsys: pytest.CaptureFixture[str]) -> None:
    counted = [o for o in outcomes.values() if o.counted]
    passing = sum(not o.failure for o in counted)
    with capsys.disabled():
        print(f" op_db: {passing} of {len(counted)} operators pass on wrappers (aot_function: {AOT_FUNCTION})")
    assert len(counted) == COUNTED
    assert passing >= AOT_FUNCTION
