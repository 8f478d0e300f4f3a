"""Functions of Python's on sizes: one compilation serves all sizes, and the results are those of eager mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile, trace_joint
from subclass_aot.subjects.numbers.functions import functions_take_symbols
from subclass_aot.testing import difference

BEFORE = dict(vars(math))

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sqrt": lambda x: x / math.sqrt(x.shape[0]),
    "sqrt of a product": lambda x: x / math.sqrt(x.shape[0] * x.shape[1]),
    "sqrt where it is zero": lambda x: x * math.sqrt(x.shape[0] - 4),
    "sqrt as a value": lambda x: torch.full((2,), math.sqrt(x.shape[0])),
    "sqrt returned": lambda x: (x, math.sqrt(x.shape[0])),
    "sqrt is a float": lambda x: x * (2 if type(math.sqrt(x.shape[0])) is float else 3),
    "attention": lambda x: torch.softmax(x @ x.T / math.sqrt(x.shape[0]), -1),
    "log2": lambda x: x * math.log2(x.shape[0]),
    "log2, to the next number": lambda x: x * math.ceil(math.log2(x.shape[0])),
    "log2 of a float": lambda x: x * math.log2(x.shape[0] / 3),
    "divmod": lambda x: x * divmod(x.shape[0], 2)[1] + divmod(x.shape[0], 2)[0],
    "divmod by a size": lambda x: x * divmod(100, x.shape[0])[1],
    "divmod of two": lambda x: x * divmod(x.shape[0] * 3, x.shape[0] + 1)[0],
    "divmod of a negative number": lambda x: x * divmod(-x.shape[0], 3)[1],
}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return all(map(same, a, b))
    return not difference(a, b) if isinstance(a, torch.Tensor) else type(a) is type(b) and a == b


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_for_all_sizes(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for n in (4, 5, 6, 9, 4, 12):
        x = torch.rand(n, 3, requires_grad=True)
        assert same(compiled(x), program(x))
    assert len(compiled.recompiles) == (0 if dynamic else 1)


def test_what_is_decided_by_them_is_assumed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if math.sqrt(x.shape[0]) > 2.5 else x[: int(math.sqrt(x.shape[0]))]

    compiled = aot_compile(program, dynamic=True)
    for n in (4, 5, 9, 7, 6):
        x = torch.rand(n, 3)
        assert same(compiled(x), program(x))
    assert len(compiled.recompiles) == 1


@pytest.mark.parametrize(
    "function", [lambda n: math.sqrt(n - 9), lambda n: math.log2(n - 4), lambda n: divmod(n, n - 4)]
)
def test_what_has_no_value_is_python_s_error(function: Callable[[int], Any]) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)) as expected:
        function(4)
    with pytest.raises(type(expected.value)):
        aot_compile(lambda x: x * function(x.shape[0]), dynamic=True)(torch.rand(4))


def test_python_has_its_own_back() -> None:
    trace_joint(PROGRAMS["sqrt"], torch.rand(4, 3))
    with functions_take_symbols():
        assert math.sqrt(4) == 2 and math.log2(8.0) == 3 and math.sqrt is not BEFORE["sqrt"]
        with pytest.raises(TypeError):
            math.sqrt()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="here"), functions_take_symbols():
        raise ValueError("here")
    assert vars(math) == BEFORE and not hasattr(torch.SymInt, "__divmod__")
