"""The report says of each signature what came in, what goes out, and what is assumed and changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from subclass_aot import TwoTensor, aot_compile
from tests.engine.trace.test_mutations import writes_in_backward


def program(x: Any, y: Any, out: Any) -> Any:
    y.mul_(2)
    view = x.t()
    out["last"] = x * y
    return x * y.sum(), view, y, view


def test_nothing_was_compiled() -> None:
    assert aot_compile(program).explain() == "program: nothing was compiled yet, the first call compiles."


def test_a_signature() -> None:
    compiled = aot_compile(program)
    compiled(TwoTensor(torch.ones(2, 2), torch.ones(2, 2)).requires_grad_(), torch.ones(2, 2), {})
    head, blank, *lines = compiled.explain().splitlines()
    assert (head, blank, lines[0]) == ("program: 1 signature, the one used last first", "", "signature 1: first call")
    spec = "Spec([2, 2], float32, cpu)"
    assert [line[2:] for line in lines[1:11]] == [
        "inputs",
        f"  args[0]: TwoTensor = {spec}, {spec} requires_grad",
        f"  args[1]: Tensor = {spec}",
        "outputs",
        "  0: TwoTensor requires_grad",
        "  1: a view of args[0]",
        "  2: the same object as args[1]",
        "  3: the same object as output[1]",
        "  4: TwoTensor requires_grad, put into args[2]['last']",
        "changed: args[2]",
    ]
    assert "  written in the graph: args[1]" in lines
    assert any(line.startswith("  forward graph: ") and " saves " in line for line in lines)


def test_leaves_that_the_function_makes() -> None:
    compiled = aot_compile(lambda x: (x[0].requires_grad_(), (x * 2).requires_grad_(), x))
    compiled(torch.ones(2))
    said = compiled.explain()
    assert "0: a view of args[0], a leaf of autograd's graph\n" in said
    assert "1: Tensor, a leaf of autograd's graph\n" in said and "2: the same object as args[0]\n" in said


def test_sizes_values_and_views() -> None:
    def looks(x: Any) -> Any:
        if x.shape[0] > 2 and x.sum() > 1:
            return x[0]
        return x

    compiled = aot_compile(looks, dynamic=True)
    compiled(torch.ones(4, 3))
    said = compiled.explain()
    assert "args[0]: Tensor = Spec([s0, s1], float32, cpu)" in said and "args[0].size(0) is s0" in said
    assert "reads a value: True (" in said and "if x.shape[0] > 2 and x.sum() > 1:" in said


def test_where_an_input_begins() -> None:
    compiled = aot_compile(lambda w: w * w.a.storage_offset())
    compiled(TwoTensor(torch.ones(5)[2:], torch.ones(3)))
    assert "reads where args[0].a begins in its storage: at element 2\n" in compiled.explain()


def test_all_that_happens_to_inputs() -> None:
    def program(x: Any, y: Any, z: Any, w: Any, parts: Any) -> Any:
        x.t_()
        y.requires_grad_()
        first, _ = parts
        first.mul_(2)
        return writes_in_backward(w, z) * y

    compiled, base = aot_compile(program), torch.ones(4)
    w = torch.ones(2, requires_grad=True)
    compiled(torch.ones(2, 3), torch.ones(2), torch.zeros(2), w, [base[:3], base[1:]]).sum().backward()
    lines = [line[2:] for line in compiled.explain().splitlines()]
    assert lines[lines.index("  0: Tensor requires_grad") + 1 : -2] == [
        "sizes and strides mutated in place: args[0]",
        "begins to require grad: args[1]",
        "written by backward: args[2]",
        "written in the graph: args[4][0]",
        "one storage in the graph: args[4][0], args[4][1]",
    ]


def test_two_signatures_and_a_transform() -> None:
    compiled = aot_compile(torch.sin)
    for dtype in (torch.float32, torch.float64):
        compiled(torch.ones(2, dtype=dtype))
    said = compiled.explain()
    assert said.startswith("sin: 2 signatures, the one used last first\n\nsignature 1: ")
    assert said.index("float64") < said.index("signature 2: first call") and "not compiled" not in said


def test_a_guard_on_sizes_names_the_line_that_asked() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 2 else x  # asked here

    compiled = aot_compile(program, dynamic=True)
    compiled(torch.rand(5, 3))
    (guard,) = re.findall(r"guard: s0 > 2 \((.*):(\d+)\)", compiled.explain())
    asked = Path(__file__).read_text().splitlines()[int(guard[1]) - 1]
    assert guard[0] == __file__ and asked.endswith("# asked here")
