"""What a forward reads of its modules is noticed, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.engine.runtime.reads import noticed, watchable


class Layer(torch.nn.Module):
    kind = "default"

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index, self.name, self.items = index, "layer", [1]

    @property
    def twice(self) -> int:
        return self.index * 2


def watched(module: torch.nn.Module, *names: str) -> Any:
    seen: list[tuple[str, str]] = []
    return seen, noticed({"0": module}, [("0", name) for name in names], seen.append)


def test_reads_are_noticed_with_their_path() -> None:
    layer = Layer(3)
    seen, block = watched(layer, "index", "name")
    with block:
        assert layer.index == 3 and layer.twice == 6 and layer.items == [1]
    assert seen == [("0", "index"), ("0", "index")]
    assert layer.name == "layer" and len(seen) == 2, "outside nobody watches"
    assert not {"index", "name"} & set(vars(Layer))


def test_other_modules_of_the_class_are_not_noticed() -> None:
    layer, other = Layer(3), Layer(4)
    seen, block = watched(layer, "index")
    with block:
        assert other.index == 4
    assert seen == []


def test_attributes_may_be_written_and_deleted_meanwhile() -> None:
    layer = Layer(3)
    layer.kind = "own"
    _, block = watched(layer, "index", "kind")
    with block:
        layer.index = 5
        assert layer.index == 5 and vars(layer)["index"] == 5
        del layer.kind
        assert layer.kind == "default", "the class has one, too"
        del layer.index
        with pytest.raises(AttributeError, match="'Layer' object has no attribute 'index'"):
            layer.index  # noqa: B018
    assert Layer.kind == "default"


def test_a_block_in_a_block_tells_both() -> None:
    layer = Layer(3)
    seen, block = watched(layer, "index")
    more, inner = watched(layer, "index")
    with block, inner:
        assert layer.index == 3
    assert seen == more == [("0", "index")]
    assert "index" not in vars(Layer)


def test_the_class_is_as_before_after_an_error() -> None:
    layer = Layer(3)
    _, block = watched(layer, "index", "kind")
    with pytest.raises(ValueError), block:
        raise ValueError
    assert Layer.kind == "default" and "index" not in vars(Layer)


class Copies(Layer):
    def forward(self) -> Any:
        return dict(vars(self))


class Slotted(Layer):
    @property
    def index(self) -> int:
        return 1

    @index.setter
    def index(self, value: int) -> None: ...


def test_what_cannot_be_watched() -> None:
    names = ["index", "name", "items", "training"]
    assert watchable(Layer(1), names) == ["index", "name"], "numbers and texts, and guards look at the mode"
    assert watchable(Copies(1), names) == [], "its class reads the whole dict"
    slotted = Slotted(1)
    vars(slotted)["index"] = 2
    assert watchable(slotted, names) == ["name"], "its class has a property that stands before it"
