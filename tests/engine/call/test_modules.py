"""The modules of a call, and the tensors that they bring."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from subclass_aot.engine.call.modules import new_modules, places_of
from subclass_aot.engine.objects import Objects
from subclass_aot.errors import LastingChangeError


def walked(*values: Any) -> Objects:
    objects = Objects()
    for i, value in enumerate(values):
        objects.root(value, f"args[{i}]", False)
    return objects


def test_submodules_come_with_their_paths_and_each_once() -> None:
    child = nn.Linear(1, 1)
    top = nn.Sequential(child, nn.ReLU(), child)
    known: list[tuple[str, nn.Module]] = []
    objects = walked(top, [child])
    found = new_modules(objects, known)
    assert found == [("args[0]", top), ("args[0].0", child), ("args[0].1", top[1])] == known
    assert new_modules(objects, known) == [] and len(known) == 3


def test_a_module_that_a_submodule_leads_to_is_found_next() -> None:
    top, hidden = nn.Sequential(nn.ReLU()), nn.Linear(1, 1)
    top[0].note = [hidden]
    objects, known = walked(top), []  # type: ignore[var-annotated]
    assert [path for path, _ in new_modules(objects, known)] == ["args[0]", "args[0].0"]
    assert new_modules(objects, known) == [("args[0].0.note[0]", hidden)]


def test_places_are_those_of_parameters_and_buffers() -> None:
    norm = nn.BatchNorm1d(2, affine=True)
    norm.register_parameter("absent", None)
    expected = {f"m.{name}": x for name, x in [*norm.named_parameters(), *norm.named_buffers()]}
    found = {place.path: tensor for place, tensor in places_of([("m", norm)])}
    assert list(found) == list(expected) and all(found[path] is expected[path] for path in found)
    for place, tensor in places_of([("m", norm)]):
        assert place.module is norm and getattr(norm, place.table)[place.name] is tensor


def test_tied_parameters_have_two_places() -> None:
    top = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    top[1].weight = top[0].weight
    known: list[tuple[str, nn.Module]] = []
    new_modules(walked(top), known)
    assert [place.path for place, _ in places_of(known)] == ["args[0].0.weight", "args[0].1.weight"]


def test_lazy_modules_are_refused() -> None:
    with pytest.raises(LastingChangeError) as raised:
        new_modules(walked(nn.Sequential(nn.LazyLinear(2))), [])
    assert "args[0].0: a parameter of a lazy module (LazyLinear)" in str(raised.value)
