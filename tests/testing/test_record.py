"""A recorded script does what the function did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.testing import difference
from subclass_aot.testing.record import record
from subclass_aot.testing.runs import Later, differences, observe

TABLE = torch.tensor([3.0, 4.0])


def writes(x: Any) -> Any:
    with torch.no_grad():
        x[1:] = 5
        x[0].mul_(2)
    return x.T, x.data


def two_results(x: Any) -> Any:
    values, places = x.max(0)
    return {"values": values, "all": [places, x.chunk(2)[1]]}


PROGRAMS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "operators": (lambda x: (x @ x + 1).sin(), ["v0 = x0.matmul(x0)", "v1 = v0.add(1)", "v2 = v1.sin()"]),
    "writes": (writes, ["x0[slice(1, None, None)] = 5", "v0 = x0[0]", "v0.mul_(2)", "v1 = x0.T", "v2 = x0.data"]),
    "several results": (
        two_results,
        ["v0 = x0.max(0)", "v1 = x0.chunk(2)", "v2 = v0[0]", "v3 = v0[1]", "v4 = v1[1]"],
    ),
    "a constant": (lambda x: x * TABLE, ["v0 = x0.mul(c1)"]),
    "a wrapper": (
        lambda x: TwoTensor(x, x * 2) + 1,
        ["v0 = x0.mul(2)", "v1 = TwoTensor(a=x0, b=v0)", "v2 = v1.add(1)"],
    ),
    "no question": (lambda x: x * x.shape[0] * x.dim(), ["v0 = x0.mul(2)", "v1 = v0.mul(2)"]),
}


def simplified(text: str) -> str:
    for written, name in (("__matmul__", "matmul"), ("__rmul__", "mul"), ("__mul__", "mul"), ("__add__", "add")):
        text = text.replace(written, name)
    return text


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_script_does_the_same(name: str) -> None:
    program, expected = PROGRAMS[name]
    script = record(program, [torch.arange(4.0).view(2, 2)])
    assert [simplified(s.line) for s in script.statements] == expected
    runs = [observe(f, ([torch.ones(2, 2) * 3], []), later=Later(backward=False)) for f in (program, script.function())]
    for mine, its in zip(runs[0].results, runs[1].results, strict=True):
        assert not difference(mine, its)
    assert not difference(runs[0].arguments[0], runs[1].arguments[0])


def test_modes_are_written_down() -> None:
    script = record(writes, [torch.ones(2, 2)])
    assert [s.mode for s in script.statements] == ["torch.no_grad()"] * 3 + ["", ""]


def test_an_error_ends_the_script() -> None:
    script = record(lambda x: x.sin().view(7).cos(), [torch.ones(2)])
    assert [s.text for s in script.statements] == ["x0.sin()", "v0.view(7)"] and script.results == ()
    expected, got = (observe(f, ([torch.ones(2)], [])) for f in (lambda x: x.sin().view(7), script.function()))
    assert not list(differences(expected, got)) and got.failed == "call"
