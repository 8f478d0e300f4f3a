"""Random programs on random wrapper trees: `aot_compile` against eager.

The default is a fixed set of examples. To look for new ones: `HYPOTHESIS_PROFILE=explore SUBCLASS_AOT_EXAMPLES=5000`.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from torch.testing._internal.two_tensor import TwoTensor as TorchTwoTensor

from subclass_aot import aot_compile
from subclass_aot.testing import cut_off, difference, rebuilt, sharing, trees
from subclass_aot.testing.programs import RESHAPES, Program, mode_of, programs
from subclass_aot.wrapper import plain_tangent

EAGER_ONLY = (
    "not implemented for",  # where the result is not used, no kernel is asked
    "the same dtype",
    "Boolean inputs not supported",
    "Cannot set version_counter for inference tensor",  # torch's own aliasing of views under inference mode
)
REFUSED = ("changes the size or strides", "the view cannot be made again")  # of inputs that change their look
INVALIDATED = "a view that was invalidated"
EXAMPLES = int(os.environ.get("SUBCLASS_AOT_EXAMPLES", "500"))


def _torch_two(tree: trees.Tree, size: tuple[int, ...], fill: trees.Fill) -> Any:
    return TorchTwoTensor(*[inner.make(size, fill) for inner in tree.inner])


trees.KINDS["TorchTwoTensor"] = _torch_two


@dataclass
class Run:
    """What one call did."""

    arguments: list[Any]
    behind: list[Any]
    before: list[Any]
    error: Exception | None = None
    results: list[Any] = field(default_factory=list)
    versions: list[bool] = field(default_factory=list)
    error_after: Exception | None = None
    backward_error: Exception | None = None
    partial: bool = False


def run(program: Program, function: Any, seed: int) -> Run:
    """Calls `function` on the program's arguments, and backward through the results that it uses."""
    arguments, behind = program.make_arguments(seed)
    done = Run(arguments, behind, [rebuilt(x, torch.clone) for x in arguments])
    versions = [x._version for x in arguments]
    torch.manual_seed(seed)
    try:
        with mode_of(program):
            done.results = [_readable(x) for x in _as_tuple(function(*arguments))]
    except Exception as error:
        done.error = error
        return done
    done.versions = [x._version != v for x, v in zip(arguments, versions, strict=True)]
    try:
        for result in done.results:
            _write_after(result, program.after)
    except Exception as error:
        done.error_after = error
        return done
    done.results = [_readable(x) for x in done.results]
    ends = [x for x in done.results if isinstance(x, torch.Tensor) and x.requires_grad and not cut_off(x)]
    ends += [x for x in arguments if x.requires_grad and not x.is_leaf]
    used = [x for i, x in enumerate(ends) if program.used[i % len(program.used)]]
    done.partial = len(used) < len(ends)
    generator = torch.Generator().manual_seed(seed + 1)
    tangents = [tangent_of(x, program.tangents, generator) for x in used]
    try:
        if used:
            torch.autograd.backward(used, tangents)
    except Exception as error:
        done.backward_error = error
    return done


def _write_after(result: Any, after: str) -> None:
    """What the caller may do with a result."""
    if after and isinstance(result, torch.Tensor) and result.dtype.is_floating_point:
        with torch.set_grad_enabled(after == "grad"):
            result.add_(0.5)


def _readable(value: Any) -> Any:
    """A word in place of a view of which autograd says nothing any more, since another view of its base was written."""
    try:
        if isinstance(value, torch.Tensor):
            value.grad_fn  # noqa: B018
    except RuntimeError:
        return INVALIDATED
    return value


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def tangent_of(tensor: Any, kind: str, generator: torch.Generator) -> Any:
    """Dense for classes whose operators give dense tensors: those get dense gradients in eager, too."""
    if kind == "expanded":
        return rebuilt(plain_tangent(tensor), lambda leaf: torch.full((), 0.7, dtype=leaf.dtype).expand(leaf.shape))
    return rebuilt(
        plain_tangent(tensor), lambda leaf: torch.rand(leaf.shape, generator=generator, dtype=leaf.dtype)
    )


def check(program: Program, seed: int, compiled: Any) -> None:
    """Compares one call, and backward, with eager's."""
    expected, got = run(program, program.function, seed), run(program, compiled, seed)
    reshapes = any(RESHAPES.search(text) for text, _ in program.statements)
    if reshapes and any(reason in str(got.error) for reason in REFUSED):
        return
    if got.error is not None and expected.error is None:  # a backward that fails whenever it is run fails at the call
        through_all = run(dataclasses.replace(program, used=(True,), after=""), program.function, seed)
        if through_all.backward_error is not None:
            return
    compare(expected, got, program)


def compare(expected: Run, got: Run, program: Program) -> None:
    if expected.error is not None or got.error is not None:
        if expected.error is None:
            assert got.error is not None
            raise got.error
        if any(reason in str(expected.error) for reason in EAGER_ONLY):
            return
        assert got.error is not None, f"eager raises {expected.error!r}"
        for i, (x, y) in enumerate(zip(got.before, got.arguments, strict=True)):
            assert not (d := difference(x, rebuilt(y, torch.clone))), f"x{i} changed although the call failed: {d}"
        return
    # Of several views that one operator made, autograd gives up all when one is written. A compiled result is a view of
    # another result or of an input only.
    if expected.error_after is not None or program.after and any(x is INVALIDATED for x in expected.results):
        return
    if got.error_after is not None:
        raise got.error_after
    for name, a, b in (
        *((f"result {i}", a, b) for i, (a, b) in enumerate(zip(expected.results, got.results, strict=True))),
        *((f"x{i}", a, b) for i, (a, b) in enumerate(zip(expected.arguments, got.arguments, strict=True))),
        *((f"behind {i}", a, b) for i, (a, b) in enumerate(zip(expected.behind, got.behind, strict=True))),
    ):
        found = difference(a, b)
        # Of views of an input that is written under inference mode autograd says one thing or another.
        unclear = program.mode == "inference" and (b is INVALIDATED or found.startswith("is_leaf"))
        assert not found or a is INVALIDATED or unclear, f"{name}: {found}"
    kept = [i for i, x in enumerate(expected.results) if isinstance(x, torch.Tensor)]
    mine, eager = ([*r.arguments, *(r.results[i] for i in kept)] for r in (got, expected))
    assert sharing(mine) == sharing(eager), f"aliasing: {sharing(eager)} expected, {sharing(mine)} got"
    assert _identity(mine) == _identity(eager), "identity"
    # A view of a view that changes its own look counts on the base, which was not changed.
    uncounted = program.mode == "inference" or any(RESHAPES.search(text) for text, _ in program.statements)
    assert expected.versions == got.versions or uncounted, "version counters"
    if expected.backward_error is not None or got.backward_error is not None:
        if expected.backward_error is None:
            assert got.backward_error is not None
            if expected.partial and program.after:  # eager does not look at what belongs to a result that is not used
                return
            raise got.backward_error
        aliases = any(argument.alias for argument in program.arguments)  # only eager shares version counters
        assert got.backward_error is not None or aliases, f"eager's backward raises {expected.backward_error!r}"
        return
    for i, (x, y) in enumerate(zip(expected.behind, got.behind, strict=True)):
        if not x.is_leaf:
            continue
        if x.grad is None and y.grad is not None and expected.partial:
            assert all(not leaf.any() for leaf in _leaves(y.grad)), f"gradient {i} should be nothing"
        else:
            found = difference(x.grad, y.grad, strides=False)
            if found and type(x.grad) is not type(y.grad) and _mixes_classes(program):
                continue
            assert not found, f"gradient {i}: {found}"


def _mixes_classes(program: Program) -> bool:
    """Which class a gradient of two has depends on what autograd copies it into when a view is written."""
    return len({argument.tree.kind for argument in program.arguments} - {"dense"}) > 1


def _identity(values: list[Any]) -> list[int]:
    return [next(i for i, y in enumerate(values) if y is x) for x in values]


def _leaves(tensor: Any) -> list[torch.Tensor]:
    from subclass_aot.testing import dense_leaves

    return dense_leaves(tensor)


@given(programs())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_random_programs(program: Program) -> None:
    compiled = aot_compile(program.function)
    for seed in (1, 2):
        check(program, seed, compiled)
    assert not compiled.recompiles
