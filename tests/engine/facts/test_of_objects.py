"""The facts of objects, read off one walk."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn

from subclass_aot.engine.facts import Kind, ObjectReader
from subclass_aot.engine.facts.fact import Code, Constant, Hooks, Names
from subclass_aot.engine.objects import Objects


class Named:
    def __init__(self) -> None:
        self.name = "one"


def facts(root: Any, written: tuple[str, ...] = ()) -> dict[tuple[str, Kind], Any]:
    objects = Objects(whole_modules=True)
    objects.root(root, "it", True)
    found = ObjectReader(objects, [False] * len(objects.holders), written).read()
    return {(fact.place, fact.kind): fact.value for fact in found}


def test_what_an_object_is_and_holds() -> None:
    found = facts(types.SimpleNamespace(rate=0.5, names=["a"], kind=int))
    assert found["it", Kind.CLASS] == Code.of(types.SimpleNamespace)
    assert found["it", Kind.KEYS] == Constant(("kind", "names", "rate"))
    assert found["it.rate", Kind.VALUE] == Constant(0.5) and found["it.kind", Kind.CODE] == Code.of(int)
    assert found["it.names", Kind.LENGTH] == 1 and found["it.names[0]", Kind.VALUE] == Constant("a")


def test_an_object_without_contents_is_known_by_identity_until_it_is_written() -> None:
    empty = types.SimpleNamespace()
    assert ("it", Kind.IDENTITY) in facts(empty)
    assert ("it", Kind.IDENTITY) not in facts(empty, written=("it",))


def test_modules_with_their_tables_and_how_hooks_run() -> None:
    layer = nn.Linear(2, 2, bias=False)
    layer.register_forward_hook(lambda *args: None, with_kwargs=True)
    found = facts(nn.Sequential(layer))
    assert found["it.0", Kind.NAMES] == Names("_buffers", ())  # the last of two
    hooks = found["it.0._forward_hooks", Kind.HOOKS]
    assert isinstance(hooks, Hooks) and hooks.how == ("_forward_hooks_with_kwargs",)
    assert found["it", Kind.CHILDREN] == Names("_modules", (("0", "it.0"),))
    assert found["it.0", Kind.CLASS] == Code.of(nn.Linear)


def test_a_key_that_is_a_tensor_and_a_set_of_objects() -> None:
    found = facts({torch.ones(1): 1, "b": 2})
    assert found["a key of it[tensor 0]", Kind.STANDS] == "a tensor" and found["it['b']", Kind.VALUE] == Constant(2)
    one = Named()
    assert facts({3, one})["it", Kind.IDENTITY] == tuple(sorted(map(id, {3, one})))
