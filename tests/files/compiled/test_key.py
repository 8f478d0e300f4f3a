"""What calls are told by: whatever differs, differs there, by value."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.base.refused import Refused
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Fact, Kind, facts_of, global_state
from subclass_aot.engine.facts.fact import Constant
from subclass_aot.files.compiled import Key, key_of
from tests.files.compiled.programs import Gray, Scaled


def key(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Key:
    return key_of(facts_of(Arguments.of(fn, args, kwargs), global_state()))


def same(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x


def _linear(**changed: Any) -> nn.Linear:
    layer = nn.Linear(2, 2)
    for name, value in changed.items():
        setattr(layer, name, value)
    return layer


ROOT = Path(__file__).resolve().parents[3]
X = torch.ones(3)
LONG = "a" * 200
CALLS: list[tuple[Callable[[], tuple[Any, ...]], Callable[[], tuple[Any, ...]]]] = [
    (lambda: (torch.ones(3),), lambda: (torch.ones(4),)),
    (lambda: (torch.ones(2, 3),), lambda: (torch.ones(3, 2).t(),)),
    (lambda: (torch.ones(3),), lambda: (torch.ones(3, dtype=torch.float64),)),
    (lambda: (torch.ones(3),), lambda: (torch.ones(3, requires_grad=True),)),
    (lambda: (torch.ones(3, requires_grad=True),), lambda: (torch.ones(3, requires_grad=True) * 1,)),
    (lambda: (X, 1), lambda: (X, 1.0)),
    (lambda: (X, 1), lambda: (X, True)),
    (lambda: (X, 0.0), lambda: (X, -0.0)),
    (lambda: (X, LONG + "b"), lambda: (X, LONG + "c")),
    (lambda: (X, torch.sin), lambda: (X, torch.cos)),
    (lambda: (X, lambda: 1), lambda: (X, lambda: 2)),
    (lambda: ([X],), lambda: ((X,),)),
    (lambda: ({"a": X},), lambda: ({"b": X},)),
    (lambda: (X, X), lambda: (X, X.clone())),
    (lambda: (X, X[:1]), lambda: (X, X[1:2])),
    (lambda: (Gray(torch.ones(2), 4),), lambda: (Gray(torch.ones(2), 5),)),
    (lambda: (sa.TwoTensor(X, X),), lambda: (sa.TwoTensor(X, X.clone()),)),
    (lambda: (Scaled(1.0, X), X), lambda: (Scaled(2.0, X), X)),
    (lambda: (Scaled(1.0, X, [X]), X), lambda: (Scaled(1.0, X, []), X)),
    (lambda: (_linear(), X), lambda: (_linear().eval(), X)),
    (lambda: (_linear(), X), lambda: (_linear(bias=None), X)),
    (lambda: (_linear(), X), lambda: (_linear(factor=3), X)),
    (lambda: (nn.Sequential(nn.ReLU()), X), lambda: (nn.Sequential(nn.GELU()), X)),
    (lambda: ({1: [X], 2: [X]},), lambda: ((lambda one: {1: one, 2: one})([X]),)),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_other_calls_have_other_keys(number: int) -> None:
    one, other = CALLS[number]
    assert key(same, *one()).call == key(same, *one()).call or number in (14,)
    assert key(same, *one()).call != key(same, *other()).call


def test_modes_belong_to_the_key() -> None:
    before = key(same, X).call
    with torch.no_grad():
        assert key(same, X).call != before
    with torch.autocast("cpu"):
        assert key(same, X).call != before
    assert key(same, X).call == before


def test_what_the_function_holds_is_apart() -> None:
    factor = 2

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    before = key(scaled, X)
    factor = 3
    after = key(scaled, X)
    assert before.call == after.call and before.function != after.function


def test_a_copy_has_the_same_key() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    assert key(module, X).function == key(copy.deepcopy(module), X).function


def test_what_cannot_be_told_is_named() -> None:
    with pytest.raises(Refused, match="lock") as refused:
        key(same, X, threading.Lock())
    assert refused.value.where == ["Python value 1"]


class Hashed:
    """As a configuration that notes its own hash, to tell whether it was changed."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.own = hash(self)

    def __hash__(self) -> int:
        return hash(self.kind)


PROCESS = """
import torch
from tests.files.compiled.test_key import Hashed, key, same
found = key(same, torch.ones(2), {"a", "b", "c", "d", "e"}, Hashed("some kind of text"))
print(sorted(found.call.items()))
"""


def test_hashes_and_the_order_of_sets_are_of_one_process() -> None:
    printed = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-W", "ignore", "-c", PROCESS]
        printed.add(subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True).stdout)
    (text,) = printed
    assert "the hash of the object" in text


class Twice(nn.Module):
    """Two layers, and one of them under another name besides."""

    def __init__(self, again: str) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.c = getattr(self, again)

    def forward(self, x: torch.Tensor) -> Any:
        return self.c(self.b(self.a(x)))


def test_which_module_has_two_names_is_in_the_key(tmp_path: Path) -> None:
    x = torch.ones(1, 2)
    first, second, third = (key(Twice(name), x).function for name in "aab")
    assert first == second != third
    one, other = Twice("a"), Twice("b")
    compiled = sa.aot_compile(one)
    compiled(x)
    compiled.save(tmp_path / "one.sa")
    assert sa.load_compiled(tmp_path / "one.sa", other, trust=True)(x).equal(other(x))


def test_objects_of_many_classes_have_texts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [type(f"Class{i}", (), {"__reduce__": lambda self: (int, ())}) for i in range(20)]
    for cls in classes:
        monkeypatch.setitem(globals(), cls.__name__, cls)
    key = key_of([Fact(cls.__name__, Kind.VALUE, Constant(cls())) for cls in classes])
    assert [text.split()[0] for text in key.call.values()] == [f"{__name__}:{cls.__name__}" for cls in classes]
