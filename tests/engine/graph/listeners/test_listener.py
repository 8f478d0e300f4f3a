"""A part of a recorder hears what it overrides, of the operators that it wants, and may record one in its own way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor, TwoTensor
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.graph.listeners.listener import GraphListener, written_leaves
from subclass_aot.engine.graph.listeners.of_recorder import Listeners
from tests.engine.graph.recording import gone_backward, raw, recorded

aten: Any = torch.ops.aten


class Everything(GraphListener):
    """Notes what it hears."""

    goes_on = True

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_operator(self, recorder: Any, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        self.heard.append(("operator", str(func), result.meta_tag is None))

    def on_node(self, recorder: Any, node: Any) -> None:
        self.heard.append(("node", node.name))

    def on_recorded(self, recorder: Any, node: Any, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        self.heard.append(("recorded", node.name, result.meta_tag is node))

    def on_write(self, recorder: Any, func: Any, leaf: MetaTensor) -> None:
        self.heard.append(("write", str(func), recorder.node_of(leaf).name))

    def on_wrapper_operator(self, recorder: Any, func: Any, args: Any, kwargs: Any) -> None:
        self.heard.append(("wrapper", str(func)))


def recorder_with(listener: Any) -> Recorder:
    """A recorder in which a listener stands in the place of one that these programs do without."""
    listeners = Listeners()
    listeners.argument_overlap = listener
    return Recorder(listeners=listeners)


def test_what_is_heard_of_operators_and_nodes() -> None:
    everything = Everything()
    recorded(lambda x: x.sin().mul_(x), recorder=recorder_with(everything))
    assert everything.heard == [
        ("node", "primals_1"),
        ("operator", "aten.sin.default", True),
        ("node", "sin"),
        ("recorded", "sin", True),
        ("operator", "aten.mul_.Tensor", False),
        ("node", "mul_"),
        ("recorded", "mul_", False),
        ("write", "aten.mul_.Tensor", "sin"),
    ]


def test_what_is_heard_of_wrappers() -> None:
    everything = Everything()
    recorded(lambda x: TwoTensor(x, x).cos(), recorder=recorder_with(everything))
    assert [x for x in everything.heard if x[0] == "wrapper"] == [("wrapper", "aten.cos.default")]


def test_operators_that_are_not_wanted_are_not_heard_of() -> None:
    class Sines(Everything):
        asked = 0

        def wants(self, func: Any) -> bool:
            self.asked += 1
            return func is aten.sin.default

    sines = Sines()
    recorded(lambda x: x.sin().cos().sin().exp().cos(), recorder=recorder_with(sines))
    assert [x[1] for x in sines.heard if x[0] == "operator"] == ["aten.sin.default"] * 2
    assert [x[1] for x in sines.heard if x[0] == "recorded"] == ["sin", "sin_1"]
    assert sines.asked == 3, "once for each operator"


def test_an_operator_may_be_recorded_in_another_way() -> None:
    class Halves(GraphListener):
        def wants(self, func: Any) -> bool:
            return func is aten.div.Tensor

        def on_operator(self, recorder: Recorder, func: Any, args: Any, kwargs: Any, result: MetaTensor) -> bool:
            with recorder:
                result.meta_tag = (args[0] * 0.5).meta_tag
            return True

    recorder, half = recorded(lambda x: (x / 2).sin(), recorder=recorder_with(Halves()))
    assert raw(recorder) == ["mul", "sin"] and [n.name for n in half.meta_tag.all_input_nodes] == ["mul"]


def test_a_fork_has_what_a_listener_says() -> None:
    class Counts(GraphListener):
        goes_on = True

        def __init__(self, count: int = 0) -> None:
            self.count = count

        def on_node(self, recorder: Any, node: Any) -> None:
            self.count += 1

        def fork(self) -> Counts:
            return Counts(self.count)

        def collections(self) -> Any:
            return [[self.count]]

    recorder = recorder_with(Counts())
    recorded(lambda x: x.sin().cos(), recorder=recorder)
    fork, _ = gone_backward(recorder, torch.exp)
    assert recorder.collections().count([3]) == 1 and fork.collections().count([5]) == 1


@pytest.mark.parametrize(
    ("func", "args", "written"),
    [
        (aten.sin.default, (0,), []),
        (aten.t.default, (0,), []),
        (aten.t_.default, (0,), []),
        (aten.add_.Tensor, (0, 1), [0]),
        (aten._foreach_add_.List, ([0, 1], [1, 1]), [0, 1]),
    ],
)
def test_leaves_whose_data_is_written(func: Any, args: Any, written: list[int]) -> None:
    leaves = [MetaTensor(torch.ones(2, 2)) for _ in range(2)]
    given = tuple([leaves[i] for i in x] if isinstance(x, list) else leaves[x] for x in args)
    assert list(map(id, written_leaves(func, given, {}))) == [id(leaves[i]) for i in written]
    out = written_leaves(aten.sin.out, (leaves[0],), {"out": leaves[1]})
    assert list(map(id, out)) == [id(leaves[1])]
