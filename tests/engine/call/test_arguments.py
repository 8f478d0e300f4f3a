"""Calls taken apart: what is found, under which path, and what is put back."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import optree
import pytest
import torch
from torch import nn

from subclass_aot import TwoTensor, aot_compile, trace_joint
from subclass_aot.engine.call import Arguments
from subclass_aot.errors import PlanError

Point = namedtuple("Point", ["x", "y"])


def total(*args: Any, **kwargs: Any) -> Any:
    return [t.sum() for t in optree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]


def test_every_tensor_has_the_path_under_which_the_caller_knows_it() -> None:
    x, y, z, w = (torch.ones(i + 1) for i in range(4))
    args = ({"b": [x, 1], "a": (y,)}, Point(z, None))
    kwargs = {"scale": OrderedDict(last=w), "flag": True}
    arguments = Arguments.of(total, args, kwargs)
    assert {arguments.path_of(i): v.numel() for i, v in enumerate(arguments.values)} == {
        "args[0]['a'][0]": 2, "args[0]['b'][0]": 1, "args[1].x": 3, "kwargs['scale']['last']": 4,
    }  # fmt: skip
    assert [v for v in arguments.leaves if not isinstance(v, torch.Tensor)] == [1, None, True]


def test_modules_bring_their_tensors_each_once() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False))
            self.again = self.body[0]
            self.tied = nn.Parameter(self.body[0].bias.detach())
            self.body[0].bias = self.tied

    model, x = Model(), torch.ones(3, 2)
    arguments = Arguments.of(model, (x, nn.Linear(1, 1, bias=False), x), {})
    assert [arguments.path_of(i) for i in range(len(arguments.values))] == [
        "args[0]", "self.tied", "self.body.0.weight", "self.body.1.running_mean", "self.body.1.running_var",
        "self.body.1.num_batches_tracked", "args[1].weight",
    ]  # fmt: skip
    assert sorted(p.path for p in arguments.places) == [
        "args[0]", "args[1].weight", "args[2]", "self.body.0.bias", "self.body.0.weight",
        "self.body.1.num_batches_tracked", "self.body.1.running_mean", "self.body.1.running_var", "self.tied",
    ]  # fmt: skip


@dataclass(frozen=True)
class Options:
    scale: float
    bias: Any = None


@pytest.mark.parametrize("hidden", [torch.ones(2), TwoTensor(torch.ones(2), torch.ones(2)), [{"deep": torch.ones(2)}]])
def test_a_tensor_in_a_dataclass_is_found(hidden: Any) -> None:
    (place,) = Arguments.of(total, (1, [Options(2.0, hidden)]), {}).places
    assert place.path.startswith("args[1][0].bias")


def test_a_tensor_in_a_set_is_an_error() -> None:
    with pytest.raises(PlanError, match=r"kwargs\['xs'\]: a set that holds tensors"):
        trace_joint(total, xs={torch.ones(2)})


def test_containers_that_torch_knows_are_taken_apart() -> None:
    class Box:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

    optree.register_pytree_node(
        Box, lambda box: ((box.inside,), None), lambda _, inside: Box(*inside), namespace="torch"
    )
    try:
        compiled = aot_compile(lambda box: Box(box.inside * 2))
        assert torch.equal(compiled(Box(torch.ones(2))).inside, torch.full((2,), 2.0))
        assert compiled(Box(torch.zeros(2))).inside.sum() == 0 and not compiled.recompiles
    finally:
        optree.unregister_pytree_node(Box, namespace="torch")


def test_modules_get_their_own_back() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    arguments = Arguments.of(model, (torch.ones(3, 2),), {})
    twins = [v.detach().clone() for v in arguments.values]
    with arguments.replaced(twins) as (args, kwargs):
        assert args[0] is twins[0] and kwargs == {}
        assert model[0].weight is twins[1]
    with pytest.raises(ZeroDivisionError), arguments.replaced(twins):
        raise ZeroDivisionError
    with arguments.replaced(twins):
        model[1].running_mean = torch.ones(2)
    after = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert list(after) == list(before) and all(after[name] is before[name] for name in before)
