"""Each symbol in the sizes of backward's inputs is an input of backward, or a size of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from subclass_aot import Int8Weight, TwoTensor, aot_compile, trace_joint
from subclass_aot.base import _torch
from subclass_aot.engine.passes import default_partition
from subclass_aot.engine.passes.symbol_inputs import save_symbols
from subclass_aot.meta.symbols import is_symbolic

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a tangent is longer than any input": lambda x: F.pad(x, (1, 2)) * 2,
    "a tangent is shorter": lambda x: F.pad(x, (-1, 0)) * 2,
    "a saved tensor is longer": lambda x: F.pad(x, (1, 2)).sin().sum(),
    "twice as long": lambda x: torch.cat([x, x], -1).sin().sum(),
    "reflected": lambda x: F.pad(x, (1, 2), mode="reflect").cos().sum(),
    "flattened": lambda x: x.flatten().sin().sum(),
    "windows": lambda x: x.unfold(1, 3, 2).sin().sum(),
    "pooled": lambda x: F.avg_pool1d(x, 2).sin().sum(),
}


def symbols_of(values: list[Any]) -> tuple[set[Any], set[Any]]:
    """Symbols that inputs are made of, and those that can be read off one."""
    used, plain = set(), set()
    for value in values:
        for number in (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,):
            if is_symbolic(number):
                used |= _torch.symbolic.expression_of(number).free_symbols
        for number in value.shape if isinstance(value, torch.Tensor) else (value,):
            if is_symbolic(number) and _torch.symbolic.expression_of(number).is_Symbol:
                plain.add(_torch.symbolic.expression_of(number))
    return used, plain


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward_knows_its_symbols(name: str) -> None:
    joint = trace_joint(PROGRAMS[name], torch.rand(5, 8, requires_grad=True), dynamic=True)
    _, backward = default_partition(joint.graph_module, [], num_fwd_outputs=joint.num_forward_outputs)
    used, plain = symbols_of([n.meta["val"] for n in backward.graph.find_nodes(op="placeholder")])
    assert used and used <= plain
    before = [n.name for n in backward.graph.nodes]
    save_symbols(backward.graph, backward.graph)
    assert [n.name for n in backward.graph.nodes] == before, "nothing is saved twice"


WRAPPED = {"dense": lambda x: x.clone(), "wrapped": lambda x: TwoTensor(x, x + 1)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrap", WRAPPED)
@pytest.mark.parametrize("name", ["a tangent is longer than any input", "a saved tensor is longer", "reflected"])
def test_inductor_compiles_once_for_all_sizes(name: str, wrap: str) -> None:
    program = PROGRAMS[name]
    compiled = aot_compile(program, fw_compiler="inductor", dynamic=True)
    for size in ((5, 8), (6, 9), (7, 4)):
        x = torch.rand(size)
        expected, got = (WRAPPED[wrap](x).requires_grad_() for _ in range(2))
        program(expected).sum().backward()
        compiled(got).sum().backward()
        torch.testing.assert_close(torch.Tensor.add(got.grad, 0), torch.Tensor.add(expected.grad, 0))
    assert len(compiled.recompiles) == 0, compiled.explain()


@pytest.mark.filterwarnings("ignore")
def test_a_padded_loss_of_quantized_words_compiles_once() -> None:
    weight = Int8Weight.from_float(torch.randn(11, 8))

    def loss(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x @ weight.t(), F.pad(labels, (0, 1), value=-100)[1:])

    compiled = aot_compile(loss, fw_compiler="inductor", dynamic=True)
    for count in (5, 6, 9):
        labels = torch.randint(0, 11, (count,))
        x, y = (torch.linspace(-1, 1, count * 8).view(count, 8).requires_grad_() for _ in range(2))
        loss(x, labels).backward()
        compiled(y, labels).backward()
        torch.testing.assert_close(y.grad, x.grad)
    assert len(compiled.recompiles) == 0, compiled.explain()
