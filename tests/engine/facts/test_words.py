"""Facts in words."""

from __future__ import annotations

import types
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Facts, difference, facts_of, global_state, words
from subclass_aot.engine.facts.metadata import metadata_of
from subclass_aot.engine.facts.modes import MODES
from subclass_aot.engine.facts.words import text_of, text_of_metadata

ones = torch.ones(2, 3)


def describe_tensor(tensor: torch.Tensor) -> str:
    return text_of_metadata(metadata_of(tensor, "", {}))


@pytest.mark.parametrize(
    "tensor, text",
    [
        (ones, "Tensor float32[2, 3] on cpu"),
        (ones.t(), "Tensor float32[3, 2] on cpu stride (1, 3)"),
        (torch.ones((), dtype=torch.int8, device="meta"), "Tensor int8[] on meta"),
        (nn.Parameter(ones), "Parameter float32[2, 3] on cpu requires_grad"),
        (torch.eye(2).to_sparse(), "Tensor float32[2, 2] on cpu"),
    ],
)
def test_dense(tensor: torch.Tensor, text: str) -> None:
    assert describe_tensor(tensor) == text


def test_wrappers_say_what_is_inside() -> None:
    outside, _, inside = describe_tensor(TwoTensor(ones, ones.double())).partition(" {")
    assert outside.endswith("TwoTensor float32[2, 3] on cpu")
    assert inside == "a: Tensor float32[2, 3] on cpu, b: Tensor float64[2, 3] on cpu}"
    assert "{codes: Tensor int8[2, 3] on cpu, scale: Tensor float32[2, 1] on cpu}" in describe_tensor(
        Int8Weight.from_float(ones)
    )
    nested = TwoTensor(TwoTensor(ones, ones), ones)
    assert describe_tensor(nested).count("TwoTensor") >= 2


def of(fn: Any, *args: Any, **kwargs: Any) -> dict[str, str]:
    return words(all_of(fn, *args, **kwargs))


def all_of(fn: Any, *args: Any, **kwargs: Any) -> Facts:
    return facts_of(Arguments.of(fn, args, kwargs), global_state())


def test_facts_of_a_call() -> None:
    layer = nn.Linear(3, 2)
    found = of(layer, ones, scale=[1.5, ones], name="a")
    assert found["grad mode"] == "True" and found["inference mode"] == "False"
    assert found["default dtype"] == "torch.float32"
    assert found["self.training"] == "True"
    assert found["self.weight"] == "Parameter float32[2, 3] on cpu requires_grad"
    assert found["args[0]"] == "Tensor float32[2, 3] on cpu"
    assert found["kwargs['scale'][1]"] == "the same tensor as args[0]"
    assert {"float 1.5", "str 'a'"} <= set(found.values())
    assert found["leaves that share storage"] == "none"
    assert "(0, 1)" in of(torch.add, ones[0], ones[1])["leaves that share storage"]


def test_long_values_are_cut() -> None:
    found = of(print, "x" * 1000)
    assert max(len(v) for k, v in found.items() if k.startswith("Python value")) < 90


def test_difference_names_what_differs_and_nothing_else() -> None:
    before, now = all_of(torch.add, ones, 1), all_of(torch.add, ones.double(), 1)
    assert difference(before, before) == []
    assert difference(before, now) == ["args[0]: Tensor float32[2, 3] on cpu before, Tensor float64[2, 3] on cpu now"]
    with torch.no_grad():
        assert difference(before, all_of(torch.add, ones, 1)) == ["grad mode: True before, False now"]
    assert any(
        "absent now" in line for line in difference(all_of(nn.Linear(3, 2), ones), all_of(nn.Linear(3, 2, False), ones))
    )


def test_leaves_of_autograd() -> None:
    x = torch.ones(3, requires_grad=True)
    assert difference(all_of(torch.sin, x), all_of(torch.sin, x * 1)) == ["args[0].is_leaf: True before, False now"]


def test_tensors_with_one_history_are_named() -> None:
    x = torch.ones(3)
    found = of(torch.add, x[1:], x[:2])
    assert found["history of args[0]"] == "its own"
    assert found["history of args[1]"] == "one with args[0]"
    assert found["storage offset of args[0]"] == "1"


class Point(NamedTuple):
    x: Any
    y: Any


class Number(int):
    pass


def held(value: Any) -> Any:
    return lambda: value


def of_objects(fn: Any, *args: Any) -> dict[str, str]:
    """What objects hold, and not what every call has."""
    every = (
        "structure",
        *MODES,
        "the lists and dicts",
        "leaves that",
        "class of fn",
        "Point.",
        "class of Point",
        "_tuple",
        "repr_fmt",
    )  # the last four: methods of a class of tuples
    return {name: text for name, text in of(fn, *args).items() if not name.startswith(every)}


@pytest.mark.parametrize(
    ("value", "facts"),
    [
        ([1, "a"], {"x[0]": "1", "x[1]": "'a'", "len(x)": "2", "class of x": "list"}),
        ({"k": 1.5}, {"x['k']": "1.5", "class of x": "dict"}),
        (types.SimpleNamespace(a=1), {"x.a": "1", "class of x": "types.SimpleNamespace"}),
        ([Point(1, "b"), [1]], {"x[0]": "Point(x=1, y='b')", "len(x)": "2", "x[1][0]": "1", "len(x[1])": "1",
                                "class of x": "list", "class of x[1]": "list"}),
        ([[]], {"len(x)": "1", "len(x[0])": "0", "class of x": "list", "class of x[0]": "list"}),
        (torch.nn.ReLU(), {"x.training": "True", "x.inplace": "False",
                           "class of x": "torch.nn.modules.activation.ReLU"}),
        (iter([1]), {}),
    ],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
def test_facts_by_name(value: Any, facts: dict[str, str]) -> None:
    x = value
    found = of_objects(lambda: x)
    if facts:
        assert found == facts


def test_facts_of_arguments_that_are_no_objects() -> None:
    found = of_objects(torch.add, 3, "a", types.SimpleNamespace(n=1), Point(1, torch.ones(1)))
    assert found["Python value 0"] == "int 3" and found["Python value 1"] == "str 'a'" and found["args[2].n"] == "1"
    assert found["args[3].y"].startswith("Tensor float32[1]")


def test_hooks_are_facts_and_a_list_that_only_grows_is_none() -> None:
    seen: list[int] = [1]

    def append() -> None:
        seen.append(1)

    module = torch.nn.ReLU()
    module.register_forward_hook(held(3))
    assert of_objects(append) == {"class of seen": "list"}
    found = of_objects(module)
    assert found["self._forward_hooks"] == "function <lambda>" and found["value"] == "3"


def number(unit: str) -> Number:
    made: Any = Number(3)
    made.unit = unit
    return made


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.5, "1.5"),
        ("a", "'a'"),
        (torch.nn.Linear(1, 1), "Linear"),
        (number("cm"), "3 with {'unit': 'cm'}"),
        ("x" * 77, repr("x" * 77)),
        ("x" * 78, "'" + "x" * 59 + "... #60a7c25e"),
    ],
)
def test_values_in_one_short_line(value: object, text: str) -> None:
    assert text_of(value) == text and len(text) < 81 and "\n" not in text


def test_an_iterator_is_told_by_identity() -> None:
    one, other = iter([1]), iter([1])
    assert text_of(one) == text_of(one) != text_of(other) and text_of(one).startswith("list_iterator at 0x")


def test_long_values_are_told_apart() -> None:
    assert text_of("x" * 100 + "a") != text_of("x" * 100 + "b")
