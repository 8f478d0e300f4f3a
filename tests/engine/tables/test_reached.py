"""Which methods may run."""

from __future__ import annotations

import enum
import functools
from typing import Any

import torch

from subclass_aot.engine.tables import Reached


class Base:
    def inherited(self) -> None: ...


class Program(Base, torch.nn.Module):
    def __init__(self) -> None: ...

    def __len__(self) -> int:
        return 0

    def forward(self, x: Any) -> Any:
        return [self.helper(x), self.computed, self.of_class(), self.inherited(), self.cached]

    def helper(self, x: Any) -> Any:
        return self.below()

    def below(self) -> None: ...

    @property
    def computed(self) -> int:
        return 1

    @classmethod
    def of_class(cls) -> None: ...

    @staticmethod
    def never() -> None: ...

    @functools.cached_property
    def cached(self) -> int:
        return 1


class Meta(type):
    def of_meta(cls) -> None: ...


class Color(enum.Enum):
    RED = 1


def run_all(reached: Reached) -> set[str]:
    found: set[str] = set()
    for _ in range(4):
        for method in list(reached.methods()):
            reached.add_function(method)
            found.add(method.__name__)
    return found


def test_methods_run_that_others_name() -> None:
    reached = Reached()
    assert list(reached.add_class(Program)) == [Program, Base]
    assert list(reached.add_class(Program)) == list(reached.add_class(Base)) == []
    assert run_all(reached) == {"__len__", "forward", "helper", "below", "computed", "of_class", "inherited", "cached"}


def test_classes_of_which_only_methods_count_and_metaclasses() -> None:
    made = Meta("made", (), {"__module__": __name__})
    assert list(Reached().add_class(Color)) == [Color] and list(Reached().add_class(made)) == [made, Meta]


def test_classes_that_are_none_of_the_users() -> None:
    reached = Reached()
    for cls in (torch.nn.Linear, int, list, torch.Tensor, type("Own", (torch.Tensor,), {})):
        assert not list(reached.add_class(cls))
    assert not list(reached.methods())
