"""A script runs, prints as a program, and can have its names changed."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.testing.inputs import Capture
from subclass_aot.testing.literals import Names
from subclass_aot.testing.script import Script, Statement


def script(*lines: Statement, tensors: Any = (), results: tuple[str, ...] = ()) -> Script:
    return Script(tuple(Capture().all(tensors)), lines, results)


TWO = torch.tensor([1.0, 2.0])


def test_it_runs() -> None:
    given = script(Statement("v0", "x0 * 2"), Statement("", "v0.add_(1)"), tensors=[TWO], results=("v0", "x0"))
    arguments, behind = given.make()
    doubled, same = given.function()(*arguments)
    assert torch.equal(doubled, TWO * 2 + 1) and same is arguments[0] and behind == []


def test_modes_are_blocks() -> None:
    lines = Statement("v0", "x0 * 2", "torch.no_grad()"), Statement("v1", "v0 + 1", "torch.no_grad()")
    given = script(*lines, Statement("v2", "v1 * x0"), tensors=[TWO], results=("v2",))
    assert given.body() == [
        "with torch.no_grad():", "    v0 = x0 * 2", "    v1 = v0 + 1", "v2 = v1 * x0", "return v2",
    ]  # fmt: skip


def test_values_at_the_end_and_where_it_raises() -> None:
    given = script(Statement("v0", "x0 + 1"), Statement("v1", "v0.view(7)"), tensors=[TWO])
    values = given.values()
    assert torch.equal(values["v0"], TWO + 1) and "v1" not in values


def test_a_constant_is_no_argument() -> None:
    capture = Capture()
    given = capture.given(TWO, "x0"), capture.given(TWO + 1, "c1", "constant")
    closed = Script(given, (Statement("v0", "x0 * c1"),), ("v0",))
    assert closed.parameters == ["x0"]
    assert torch.equal(closed.function()(TWO), TWO * (TWO + 1))


def test_names_are_counted_from_zero() -> None:
    given = Script((Capture().given(TWO, "x3"),), (Statement("v7", "x3 * x33"), Statement("v9", "v7.t()")), ("v9",))
    renamed = given.renamed()
    assert renamed.body() == ["v0 = x0 * x33", "v1 = v0.t()", "return v1"] and renamed.parameters == ["x0"]


def test_a_program_runs_by_itself() -> None:
    given = script(Statement("v0", "x0.sin()"), tensors=[TWO], results=("v0",))
    text = given.text("result = program(*args)", Names(), "torch.no_grad()")
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    assert torch.equal(namespace["result"], TWO.sin())
    assert text.startswith("import torch\n\ntorch.manual_seed(0)\n")
    assert text.endswith("with torch.no_grad():\n    result = program(*(x0,))")


def test_what_a_statement_reads() -> None:
    assert Statement("v2", "torch.cat([v1, x0_base, v1, c3], x)").reads() == ["v1", "x0_base", "c3"]
