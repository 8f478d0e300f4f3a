"""What `resize_` and its kin do, as a graph has it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Spec
from subclass_aot.engine.graph.resize import resize_like, resized_by, resizes, with_capacity
from tests.engine.graph.recording import recorded

LIKE = {
    "rows": torch.ones(2, 3),
    "transposed": torch.ones(3, 2).t(),
    "channels last": torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "channels last of three dims": torch.ones(1, 2, 2, 2, 3).to(memory_format=torch.channels_last_3d),
    "a number": torch.tensor(1.0),
}


@pytest.mark.parametrize("template", LIKE.values(), ids=LIKE)
@pytest.mark.parametrize("memory_format", [None, torch.preserve_format, torch.contiguous_format])
def test_resize_as_without_the_tensor_that_it_looks_at(
    template: torch.Tensor, memory_format: torch.memory_format | None
) -> None:
    step = resize_like(template, memory_format=memory_format)
    assert not any(isinstance(x, torch.Tensor) for x in (*step.args, *dict(step.kwargs).values()))
    got, expected = torch.arange(40.0), torch.arange(40.0)
    step(got)
    expected.resize_as_(template, memory_format=memory_format)
    assert got.stride() == expected.stride() and torch.equal(got, expected)


@pytest.mark.parametrize("view", [lambda x: x, lambda x: x.t(), lambda x: x[:, 1:]])
def test_a_tensor_with_room_has_its_elements_where_they_are_in_its_storage(view: Any) -> None:
    value = view(torch.arange(6.0).view(2, 3))
    spec = Spec.of(value)
    flat = with_capacity(value.clone(), spec, 9)
    assert flat.shape == (9,) and torch.equal(flat.as_strided(spec.size, spec.stride, spec.offset), value)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_which_nodes_give_a_tensor_another_size() -> None:
    def program(x: Any) -> None:
        y, z = x * 1, torch.empty(0)
        y.resize_(2)
        x.resize_as_(y)
        torch.add(y, y, out=z)
        y.add_(z)

    nodes = {node.name: node for node in recorded(program)[0].in_order()}
    found = {name: by.name for name, node in nodes.items() if (by := resized_by(node)) is not None}
    assert found == {"resize_": "mul", "resize_as_": "primals_1", "add": "empty"}
    assert [name for name, node in nodes.items() if resizes(node)] == ["resize_", "resize_as_"]
