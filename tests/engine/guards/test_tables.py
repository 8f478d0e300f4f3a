"""Which values the accelerator compares, and what it is told of them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import TwoTensor, WrapperTensor, aot_compile, mark_dynamic, trace_joint
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Fact, Facts, Kind, Scope, facts_of, global_state
from subclass_aot.engine.facts.metadata import metadata_of
from subclass_aot.engine.guards.tables import Pattern, lines_of, make_table, tabled
from subclass_aot.engine.guards.tensor_guards import patterns_of
from subclass_aot.kit.flatten import create_subclass_meta
from tests.native.places import run_natively


class Parts(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]


class Asked(ForeignTensor):
    """Only its code tells its context."""

    def __tensor_flatten__(self) -> Any:
        return list("ab"), None


class Noted(WrapperTensor, fallback="each"):
    value: torch.Tensor
    note: Any = None
    more: torch.Tensor | None = None


def ones(*size: int) -> torch.Tensor:
    return torch.ones(*size)


def patterns(*args: Any) -> list[Pattern]:
    def fn(*args: Any) -> Any:
        return [x * 2 for x in args]

    signature, arguments = trace_joint(fn, *args).signature, Arguments.of(fn, args, ())
    return patterns_of(arguments, signature, facts_of(arguments, global_state(), Scope.of(signature)))


def leaf(position: int) -> Facts:
    return (Fact("x", Kind.LEAF, True, within=str(position)),)


@pytest.fixture(autouse=True)
def _accelerated(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built)


def test_without_the_accelerator_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, None)
    assert tabled(patterns(ones(2)), [0], ()) == {}


def test_what_is_told() -> None:
    x, y, z = ones(2), TwoTensor(ForeignTensor(ones(2), ones(2)), ones(2)), Noted(ones(2), (1, "a"))
    found = tabled(patterns(x, y, z), [0, 1, 2], leaf(0))
    inner = (None, None)
    foreign = (None, (("a", "b"), (inner, inner), {}, ()))
    descriptions = [
        (True, None),
        (None, (("a", "b"), (foreign, inner), {}, ())),
        (None, (("value",), (inner,), {"note": (1, "a")}, ("more",))),
    ]
    for value, description, leaves, each in zip((x, y, z), descriptions, (1, 3, 1), found.values(), strict=True):
        assert each == (value, metadata_of(value, "", {}), description, leaves)


def test_only_what_is_asked_for() -> None:
    assert list(tabled(patterns(ones(2), ones(3)), [1], ())) == [1]


def test_what_generated_code_compares() -> None:
    jagged = torch.nested.nested_tensor([ones(2), ones(3)], layout=torch.jagged)
    assert tabled(patterns(jagged), [0], ()) == {}
    assert tabled(patterns(ones(2), jagged), [0, 1], ()) == {}  # a table would have to tell the two apart
    values = Asked(ones(2), ones(2)), ones(3)
    metas = create_subclass_meta(values)
    asked = [Pattern(x, meta, metadata_of(x, "", {})) for x, meta in zip(values, metas, strict=True)]
    assert list(tabled(asked, [0, 1], ())) == [1]
    parts = Parts([ones(2), ones(2)])
    assert list(tabled(patterns(parts, ones(2)), [0, 1], ())) == [0, 1]  # its tensors stand one by one


def test_symbolic_sizes_are_read_by_generated_code() -> None:
    compiled = aot_compile(lambda x, y: (x * 2, y * 2))
    x, y = TwoTensor(ones(2, 3), ones(2, 3)), ones(4)
    mark_dynamic(x, 0)
    compiled(x, y)
    assert "read_leaves((" in compiled.source and "args[0].a" not in compiled.source
    again = TwoTensor(ones(5, 3), ones(5, 3))
    assert compiled(again, y)[0].shape == (5, 3) and not compiled.recompiles


def test_one_table_for_all() -> None:
    values = list(tabled(patterns(ones(2), TwoTensor(ones(2), ones(2))), [0, 1], ()).values())
    read = make_table(values, [ones(3)], [[3]], [[1]])
    x, y = ones(2), TwoTensor(ones(2), ones(2))
    assert read((x, y), ones(3)) == [x, y.a, y.b] and read((x, y), ones(4)) is None and read((x, y), x) is None


def test_words() -> None:
    values = list(tabled(patterns(ones(2, 3), ones(2).requires_grad_()), [0, 1], leaf(1)).values())
    assert list(lines_of(["args[0]", "w"], values))[1:] == [
        "#   args[0]: Tensor float32[2, 3] on cpu",
        "#   w: Tensor float32[2] on cpu requires_grad, a leaf of autograd",
    ]


def test_the_text_is_beside_the_code() -> None:
    compiled = aot_compile(lambda x: x * 2)
    compiled(TwoTensor(ones(2), ones(2)))
    assert "# What `read_leaves` compares" in compiled.source and "TwoTensor float32[2] on cpu" in compiled.source
