"""Arguments as trees."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import torch

from subclass_aot.engine.call.pytree import flatten, keys_of, path_of, reached_twice
from subclass_aot.engine.objects import Objects
from subclass_aot.errors import PlanError


class Point(NamedTuple):
    x: Any
    y: Any


class Key:
    pass


class Mine(list[Any]):
    pass


A = torch.ones(1)
KEY = Key()


@pytest.mark.parametrize(
    ("args", "kwargs", "found"),
    [
        ((A, 1, None), {}, {"args[0]": A, "args[1]": 1, "args[2]": None}),
        (([A, (1,)],), {"k": [2], "l": 3},
         {"args[0][0]": A, "args[0][1][0]": 1, "kwargs['k'][0]": 2, "kwargs['l']": 3}),
        ((Point(A, {"a": 1}),), {}, {"args[0].x": A, "args[0].y['a']": 1}),
        ((OrderedDict(b=1, a=2),), {}, {"args[0]['b']": 1, "args[0]['a']": 2}),
        (([],), {"k": {}}, {}),
    ],
)  # fmt: skip
def test_leaves_and_their_paths(args: Any, kwargs: Any, found: dict[str, Any]) -> None:
    """The oracle is Python: a path is the expression of its leaf."""
    leaves, treespec = flatten((args, kwargs))
    paths = [path_of(accessor) for accessor in treespec.accessors()]
    assert sorted(paths) == sorted(found)
    for path, leaf in zip(paths, leaves, strict=True):
        assert leaf is found[path] is eval(path, {"args": args, "kwargs": kwargs})


def test_an_object_of_a_class_of_lists_is_one_leaf() -> None:
    value = Mine([A])
    assert flatten(([value], {}))[0] == [value]


@pytest.mark.parametrize(
    ("args", "kwargs", "found"),
    [
        (({"a": A},), {}, []),
        (({KEY: A},), {}, [("a key of args[0]", KEY)]),
        (([{"a": {KEY: A}}],), {}, [("a key of args[0][0]['a']", KEY)]),
        ((), {"k": {KEY: A}}, [("a key of kwargs['k']", KEY)]),
    ],
)
def test_keys_that_are_objects(args: Any, kwargs: Any, found: list[Any]) -> None:
    assert list(keys_of(flatten((args, kwargs))[1])) == found


def test_a_key_that_holds_a_tensor_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^args\[0\]: a key is a tuple that holds tensors"):
        list(keys_of(flatten((({(A, 1): 2},), {}))[1]))


INNER: list[Any] = [1]
DICT: dict[str, Any] = {"a": 1}


@pytest.mark.parametrize(
    ("args", "kwargs", "found"),
    [
        ((INNER, [2]), {}, {}),
        ((INNER, INNER), {}, {id(INNER): "args[1]"}),
        ((INNER,), {"k": {"l": INNER}}, {id(INNER): "args[0]"}),
        ((DICT, [DICT]), {}, {id(DICT): "args[1][0]"}),
        (((INNER,), (INNER,)), {}, {id(INNER): "args[0][0]"}),
        ((A, A), {}, {}),
    ],
)
def test_what_is_reached_twice(args: Any, kwargs: Any, found: dict[int, str]) -> None:
    assert reached_twice((args, kwargs), Objects()) == found


def test_what_an_object_holds_too() -> None:
    objects = Objects()
    objects.root([INNER], "held", True)
    assert reached_twice(((INNER,), {}), objects) == {id(INNER): "args[0]"}


def test_lists_of_a_user_are_not_copied() -> None:
    value = Mine()
    assert reached_twice(((value, value), {}), Objects()) == {}


def test_one_tuple_twice_is_no_copy() -> None:
    shared = (1,)
    assert reached_twice(((shared, shared), {}), Objects()) == {}
