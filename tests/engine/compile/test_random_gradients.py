"""Random programs: second derivatives, and gradients of other kinds than expected. `aot_compile` against eager.

More examples: `HYPOTHESIS_PROFILE=explore SUBCLASS_AOT_EXAMPLES=5000`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import aot_compile
from subclass_aot.errors import DoubleBackwardError, MutationError, TraceError
from subclass_aot.kit.wrapper import plain_tangent
from subclass_aot.testing import cut_off, dense_leaves, difference, rebuilt
from tests.fuzz.programs import Program, programs

REFUSED = ("changes the size or strides", "the view cannot be regenerated")  # of inputs that change their look
EXAMPLES = int(os.environ.get("SUBCLASS_AOT_EXAMPLES", "100"))


class Skipped(Exception):
    """The program is not one that the test is about."""


def ends_and_leaves(program: Program, function: Any, seed: int) -> tuple[list[Any], list[Any]]:
    """Calls the program; gives the results through which autograd goes, and the leaves of autograd's graph."""
    arguments, behind = program.make_arguments(seed)
    torch.manual_seed(seed)
    results = function(*arguments)
    results = results if isinstance(results, tuple) else (results,)
    ends = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad and not cut_off(x)]
    ends += [x for x in arguments if x.requires_grad and not x.is_leaf]
    ends = [x for i, x in enumerate(ends) if program.later.used[i % len(program.later.used)]]
    leaves = [x for x in behind if x.is_leaf]
    if not ends or not leaves:
        raise Skipped
    return ends, leaves


def outcome(gradients: Callable[..., Any], *args: Any) -> Any:
    """What it returns, or the exception."""
    try:
        return gradients(*args)
    except Skipped:
        raise
    except Exception as error:
        return error


def same(expected: Any, got: Any) -> None:
    if isinstance(got, MutationError | TraceError) and any(reason in str(got) for reason in REFUSED):
        return
    if isinstance(got, Exception):
        raise got
    for i, (x, y) in enumerate(zip(expected, got, strict=True)):
        if x is None and y is not None:  # an unused result: eager has nothing where a graph has zeros
            assert not any(leaf.any() for leaf in dense_leaves(y)), f"gradient {i} should be nothing"
            continue
        found = difference(None if x is None else x.detach(), None if y is None else y.detach(), strides=False)
        assert not found, f"gradient {i}: {found}"


def second_derivatives(program: Program, function: Any, seed: int) -> list[Any]:
    ends, leaves = ends_and_leaves(program, function, seed)
    tangents = [rebuilt(plain_tangent(x), lambda leaf: torch.full_like(leaf, 0.7)) for x in ends]
    first = torch.autograd.grad(ends, leaves, tangents, create_graph=True, allow_unused=True)
    total = [(g * g).sum() for g in first if g is not None and g.requires_grad]
    if not total:
        return list(first)
    ones = [torch.ones_like(t.detach()) for t in total]
    return [*first, *torch.autograd.grad(total, leaves, ones, allow_unused=True)]


@given(programs())
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_second_derivatives_of_random_programs(program: Program) -> None:
    program = dataclasses.replace(program, mode="grad", later=dataclasses.replace(program.later, after=""))
    compiled = aot_compile(program.function, double_backward=True)
    for seed in (1, 2):
        try:
            expected = outcome(second_derivatives, program, program.function, seed)
            got = outcome(second_derivatives, program, compiled, seed)
        except Skipped:
            return
        if isinstance(expected, Exception):
            continue
        if isinstance(got, DoubleBackwardError):
            return
        same(expected, got)


def other_kind(tensor: Any, kind: str) -> Any:
    dense = torch.linspace(-1, 1, tensor.numel(), dtype=tensor.dtype).view(tensor.shape)
    if kind == "dense":
        return dense
    if kind == "two":
        return TwoTensor(dense, dense * 2)
    return TwoTensor(TwoTensor(dense, dense * 2), TwoTensor(dense + 1, dense))


def first_derivatives(program: Program, function: Any, seed: int, kinds: list[str]) -> Any:
    ends, leaves = ends_and_leaves(program, function, seed)
    tangents = [other_kind(x, kinds[i % len(kinds)]) for i, x in enumerate(ends)]
    return torch.autograd.grad(ends, leaves, tangents, allow_unused=True)


@given(programs(), st.lists(st.sampled_from(["dense", "two", "nested"]), min_size=1, max_size=3))
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_other_gradients_of_random_programs(program: Program, kinds: list[str]) -> None:
    program = dataclasses.replace(program, mode="grad", later=dataclasses.replace(program.later, after=""))
    compiled = aot_compile(program.function)
    for seed in (1, 2):
        try:
            expected = outcome(first_derivatives, program, program.function, seed, kinds)
            got = outcome(first_derivatives, program, compiled, seed, kinds)
        except Skipped:
            return
        if isinstance(expected, Exception):
            continue
        same(expected, got)
