"""The errors that torch's own databases say its operators and modules raise, caught by the program inside a trace.

A program that catches an error is compiled as it is: what it catches is of the class that eager mode raises, at the
line of the operator. `LISTED` has what is not so, each with the reason; the list is exact in both directions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import optree
import pytest
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

from subclass_aot import MetaTensor, aot_compile
from tests.databases.cases import _quick_samples, seed

pytestmark = [pytest.mark.every_case, pytest.mark.filterwarnings("ignore")]

VALUES = "depends on values: the call finds it out, after the program is past the line"
OVERLAP = "the memory of `out=` overlaps that of an argument, which no trace sees"
REFUSED = "as before, and refused by name"
STORAGE = "beyond the memory of the argument: a traced tensor has as much as its elements take"
LISTED: dict[str, tuple[str | None, str]] = {
    "as_strided_scatter 0": (None, STORAGE),
    "cat 6": ("*MutationError", REFUSED),
    "cat 7": ("MutationError", REFUSED),
    "cat 8": ("MutationError", REFUSED),
    "gather 4": ("*RuntimeError", VALUES),
    "gather 6": ("*MutationError", REFUSED),
    "gather 7": (None, OVERLAP),
    "index_select 0": (None, OVERLAP),
    "kthvalue 0": ("*MutationError", REFUSED),
    "masked_select 0": ("DataDependentError", REFUSED),
    "masked_select 1": ("DataDependentError", REFUSED),
    "masked_select 2": ("DataDependentError", REFUSED),
    "scatter 3": ("*RuntimeError", VALUES),
    "scatter_add 3": ("*RuntimeError", VALUES),
    "take 1": ("*MutationError", REFUSED),
    "take 2": ("MutationError", REFUSED),
    "nn.Embedding 0": ("*IndexError", VALUES),
    **{f"multinomial {number}": ("*RuntimeError", VALUES) for number in range(7, 21)},
}
"""What a program catches inside otherwise, with the reason. What comes out of the call has a star, and is of the class
of eager mode where values decide."""

READ: dict[str, str] = {
    "cov 7": VALUES,
    "cov 8": VALUES,
    "nn.functional.gaussian_nll_loss": "asks first whether a variance is negative",
}
"""What reads values before it raises: a compiled program reads those of its call, and a `MetaTensor` has none."""


def of_operators(operators: list[Any]) -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Yields the name, the function and the arguments of calls that raise, as the database has them."""
    for op in operators:
        if op.error_inputs_func is None:
            continue
        seed(0)
        with _quick_samples():
            found = list(op.error_inputs("cpu"))
        for number, each in enumerate(found):
            sample = each.sample_input
            yield f"{op.full_name} {number}", op.op, ((sample.input, *sample.args), sample.kwargs)


def of_modules() -> Iterator[tuple[str, Callable[..., Any], Any]]:
    """Yields likewise the calls of modules that raise, and constructors that do."""
    for info in module_db:
        if info.module_error_inputs_func is None:
            continue
        seed(0)
        found = info.module_error_inputs_func(info, "cpu", torch.float32, False, True)
        for number, each in enumerate(found):
            given = each.module_error_input.constructor_input
            name = f"{info.name} {number}"
            if each.error_on is ModuleErrorEnum.CONSTRUCTION_ERROR:
                yield name, info.module_cls, (given.args, given.kwargs)
            else:
                forward = each.module_error_input.forward_input
                yield name, info.module_cls(*given.args, **given.kwargs), (forward.args, forward.kwargs)


def raised_by(function: Callable[..., Any], arguments: Any) -> str | None:
    """Returns the class of what a call raises."""
    args, kwargs = arguments
    try:
        function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__
    return None


def caught_inside(function: Callable[..., Any], arguments: Any) -> str | None:
    """Returns the class of what a compiled program catches around the call; what comes out is marked by a star."""

    def program(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return type(error).__name__

    args, kwargs = arguments
    try:
        found = aot_compile(program, fw_compiler="eager")(*args, **kwargs)
    except Exception as error:
        return f"*{type(error).__name__}"
    return found if isinstance(found, str) else None


def without_data(x: Any) -> Any:
    return MetaTensor.like(x) if isinstance(x, torch.Tensor) else x


def difference(name: str, function: Callable[..., Any], arguments: Any) -> str:
    """Returns how the classes of errors differ; "" if they do not."""
    expected = raised_by(function, copy.deepcopy(arguments))
    if expected is None:  # what torch checks of strides that its samples lose in a copy
        return ""
    found = {"inside": caught_inside(function, copy.deepcopy(arguments))}
    if not isinstance(function, torch.nn.Module) and not any(name.startswith(each) for each in READ):
        twins: Any = optree.tree_map(without_data, arguments, none_is_leaf=True)
        found["without data"] = raised_by(function, twins)
    if name in LISTED and found["inside"] != expected:
        kind, why = LISTED[name]
        assert why != VALUES or kind == f"*{expected}", name
        return why if found["inside"] == kind else f"inside: {found['inside']}, and {kind} is listed"
    wrong = [f"{what}: {kind}" for what, kind in found.items() if kind != expected]
    return f"{', '.join(wrong)}, and {expected} in eager mode" if wrong else ""


def check(calls: Iterator[tuple[str, Callable[..., Any], Any]]) -> int:
    """Asserts that what differs is what is listed; returns how many calls there were."""
    with ThreadPoolExecutor(1) as thread:  # a short stack: samples read all of it
        found = thread.submit(lambda: {call[0]: difference(*call) for call in calls}).result()
    wrong = {name: text for name, text in found.items() if text and (name not in LISTED or text != LISTED[name][1])}
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
    assert not [name for name in LISTED if found.get(name) == ""], "listed, but right"
    return len(found)


PARTS = 12
OPERATORS = common_methods_invocations.op_db
SAMPLE = {"nn.functional.embedding", "complex", "narrow_copy", "amax", "bucketize", "gather", "multinomial"}


def test_a_sample_of_operators() -> None:
    assert check(of_operators([op for op in OPERATORS if op.name in SAMPLE])) > 20


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_operators(part: int) -> None:
    assert check(of_operators(OPERATORS[part::PARTS])) > 5


@pytest.mark.long
def test_modules() -> None:
    assert check(of_modules()) > 20
