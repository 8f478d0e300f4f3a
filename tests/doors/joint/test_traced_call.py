"""What the call was like that was traced, without its tensors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot import trace_joint
from subclass_aot.doors.joint.traced_call import _alone, _facts_of_values
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Scope, difference, facts_of, global_state
from subclass_aot.errors import JointGraphError
from subclass_aot.files.compiled import told


def test_it_holds_nothing_of_the_call() -> None:
    layer, x = nn.Linear(3, 2), torch.rand(5, 3)
    joint = trace_joint(layer, x)
    gone = [weakref.ref(layer), weakref.ref(layer.weight), weakref.ref(x)]
    del layer, x
    gc.collect()
    assert [reference() for reference in gone] == [None] * 3 and joint.call.order == ("weight", "bias", "args[0]")


def test_names_of_every_place() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    call = trace_joint(module, torch.rand(1, 2)).call
    assert call.names["1.weight"] == call.names["self.1.weight"] == "0.weight"


def test_many_differences_are_cut() -> None:
    module, x = nn.Sequential(*(nn.Linear(2, 2) for _ in range(8))), torch.rand(1, 2)
    joint = trace_joint(module, x)
    module.to(torch.bfloat16)
    arguments = Arguments.of(module, (x,), {}).parameters_first()
    with pytest.raises(JointGraphError, match=r"self.3.bias: .*\n  and 8 more\n"):
        joint.call.refuse_other(arguments, joint.signature)


def test_the_code_of_a_function_tells_it_from_another() -> None:
    def make(factor: int) -> Any:
        return (lambda x: x * 2) if factor == 2 else (lambda x: x * 3)

    call = trace_joint(make(2), torch.ones(2)).call
    call.refuse_other_function(make(2))
    with pytest.raises(JointGraphError, match="another of that name"):
        call.refuse_other_function(make(3))


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm, self.held = nn.BatchNorm1d(3), [torch.ones(3)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.held[0].add_(1)
        return self.norm(self.second(self.first(x))) + self.held[0]


def _marked() -> torch.Tensor:
    x = torch.rand(5, 3)
    sa.mark_dynamic(x, 0)
    return x


def _of_one_memory() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(4, 3)
    return x[:3], x[1:]


def _wrapper() -> sa.TwoTensor:
    return sa.TwoTensor(torch.rand(3), torch.rand(3))


def _writes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return y + 1


_held = torch.rand(3)
_ALONE: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "a module": lambda: (_Tied(), (torch.rand(2, 3),)),
    "passed twice": lambda: (torch.mul, (_held, _held)),
    "one memory": lambda: (_writes, _of_one_memory()),
    "one memory, read": lambda: (torch.add, _of_one_memory()),
    "a wrapper and its part": lambda: (lambda w: _writes(w, w.a), (_wrapper(),)),
    "changing sizes": lambda: (lambda x: x.sum(0) * x.shape[0], (_marked(),)),
    "a closure": lambda: (lambda x: x * _held, (torch.rand(3),)),
    "metadata": lambda: (lambda x: x.t_() + 1, (torch.rand(3, 2),)),
    "begins to require grad": lambda: (lambda x: x.requires_grad_() * 2, (torch.rand(3),)),
    "no leaf": lambda: (lambda x: x * 2, (torch.rand(3, requires_grad=True) * 1,)),
    "a structure": lambda: (lambda d: d["x"][0] * d["n"], ({"x": [torch.rand(3), None], "n": 3},)),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", _ALONE)
def test_what_is_left_of_a_call_follows_from_its_facts(name: str) -> None:
    function, args = _ALONE[name]()
    arguments = Arguments.of(function, args, {}).parameters_first()
    joint = trace_joint(function, *args)
    assert joint.call.of_values is None
    expected = told(_facts_of_values(arguments.values, joint.signature))
    found = _alone(joint.call.facts.told())
    assert len(found) == len(expected) and not difference(expected, found) and not difference(found, expected)


def test_of_views_that_come_as_their_base_it_is_read_at_once() -> None:
    base = torch.rand(4, 3, requires_grad=True) * 1
    joint = trace_joint(_writes, base[:3], base[1:])
    assert joint.signature.views and joint.call.of_values is not None


class _Counting(nn.Module):
    """A module with numbers, a list, a submodule, and a class whose method may be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.n, self.zero, self.items = nn.Linear(2, 2), 1, 0.0, [1, 2.5, "a"]

    def forward(self, x: Any) -> Any:
        return self.inner(x) * self.n + self.zero + len(self.items)


_CHANGES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda m: None,
    "an equal value": lambda m: setattr(m, "items", [1, 2.5, "".join("a")]),
    "a number": lambda m: setattr(m, "n", 2),
    "a number of another class": lambda m: setattr(m, "n", True),
    "another zero": lambda m: setattr(m, "zero", -0.0),
    "a list that grew": lambda m: m.items.append(None),
    "another submodule": lambda m: setattr(m, "inner", nn.Linear(2, 2)),
    "a dtype": lambda m: m.double(),
    "training": lambda m: m.eval(),
    "a hook": lambda m: m.inner.register_forward_hook(lambda *_: None),
    "an attribute more": lambda m: setattr(m, "more", 1),
    "frozen": lambda m: m.requires_grad_(False),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", _CHANGES)
def test_differences_are_those_of_all_facts_as_text(name: str) -> None:
    model, x = _Counting(), torch.rand(1, 2)
    joint = trace_joint(model, x)
    again = trace_joint(model, x)
    _CHANGES[name](model)
    arguments = Arguments.of(model, (x.to(model.inner.weight.dtype),), {}).parameters_first()
    now = facts_of(arguments, global_state(), Scope.of(joint.signature))
    before, after = joint.call.facts.beside(now)
    assert difference(before, after) == difference(again.call.facts.told(), told(now))
    assert difference(*again.call.facts.beside(now)) == difference(before, after)  # which is text by now
    is_same = name in ("nothing", "an equal value", "another submodule")  # any module that is alike may be bound
    assert (not before) is is_same and bool(difference(before, after)) is not is_same
