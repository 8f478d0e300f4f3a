"""The walk over the objects of a call: what it finds, and how other tensors are put there and taken out again."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import pytest
import torch

from subclass_aot.engine.objects import Objects, parts_of, refuse_key
from subclass_aot.engine.objects.nodes import NumberAt, ObjectAt, TensorAt, TupleAt, ValueAt, WeakAt, is_replaced
from subclass_aot.errors import MutationError, PlanError

A, B, C = torch.ones(1), torch.ones(2), torch.ones(3)


class Point(NamedTuple):
    x: Any
    y: Any


class Cell:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def method(self) -> Any:
        return vars(self)


class Slotted:
    __slots__ = ("x", "y")


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(A)
        self.register_buffer("mean", B)
        self.cache = [C]


def slotted(x: Any) -> Slotted:
    made = Slotted()
    made.x = x
    return made


def linked() -> Cell:
    cell = Cell(x=A)
    cell.itself = [cell, B]  # type: ignore[attr-defined]
    return cell


def closure() -> Any:
    held = A
    return lambda: held


HOLDERS: dict[str, tuple[Callable[[], Any], dict[str, torch.Tensor]]] = {
    "list": (lambda: [A, 1, [B]], {"x[0]": A, "x[2][0]": B}),
    "dict": (lambda: {"k": A, 1: {"l": B}}, {"x['k']": A, "x[1]['l']": B}),
    "dict with a tensor for a key": (lambda: {A: 1, "k": B}, {"a key of x[tensor 0]": A, "x['k']": B}),
    "object": (lambda: Cell(a=A, b=Cell(b=B)), {"x.a": A, "x.b.b": B}),
    "slots": (lambda: slotted(A), {"x.x": A}),
    "tuples": (lambda: [Point(1, (A, "a")), (1, 2)], {"x[0][1][0]": A}),
    "closure": (closure, {"held": A}),
    "partial": (lambda: functools.partial(max, A, key=B), {"x.args[0]": A, "x.keywords['key']": B}),
    "method": (lambda: [Cell(a=A).method], {"x[0].__self__.a": A}),
    "cycle": (linked, {"x.x": A, "x.itself[1]": B}),
    "one tensor twice": (lambda: [A, A], {"x[0]": A, "x[1]": A}),
    "module": (Layer, {"x.cache[0]": C}),
}


def walked(value: Any, **options: Any) -> Objects:
    objects = Objects(**options)
    objects.root(value, "x", False)
    return objects


@pytest.mark.parametrize("name", HOLDERS)
def test_tensors_with_their_paths(name: str) -> None:
    make, expected = HOLDERS[name]
    found = [(held.path, held.tensor) for held in walked(make()).tensors]
    assert sorted(path for path, _ in found) == sorted(expected)
    assert all(tensor is expected[path] for path, tensor in found)


def read(objects: Objects) -> list[Any]:
    """Every table as it is now."""
    return [(table, table.read(holder.value)) for holder in objects.holders for table, _ in holder.tables]


@pytest.mark.parametrize("name", HOLDERS)
def test_other_tensors_are_put_there_and_taken_out_again(name: str) -> None:
    """The oracle is a second walk: it finds the other tensors where the first one found its own."""
    value = HOLDERS[name][0]()
    objects = walked(value)
    before = read(objects)
    others = [torch.zeros(3) for _ in objects.tensors]
    with pytest.raises(ZeroDivisionError), objects.restored():
        objects.put(others, lambda holder: None, False, {})
        again = walked(value)
        assert [held.path for held in again.tensors] == [held.path for held in objects.tensors]
        assert all(held.tensor is other for held, other in zip(again.tensors, others, strict=True))
        raise ZeroDivisionError
    assert [(t, objects.found(entries)) for h in objects.holders for t, entries in h.tables] == before
    for (table, now), (_, then) in zip(read(objects), before, strict=True):
        assert table.same(now, then)


def test_whole_modules() -> None:
    assert [h.path for h in walked(Layer(), whole_modules=True).tensors] == ["x.weight", "x.mean", "x.cache[0]"]
    assert [path for path, _ in walked([Layer()]).modules] == ["x[0]"]


def test_what_is_found_is_what_stood_there() -> None:
    value = [A, Point(B, 1), "a", Cell()]
    ((_, entries),) = (objects := walked(value)).holders[0].tables
    value[:] = []
    found = [part for _, part in objects.found(entries)]
    assert found[0] is A and found[1][0] is B and found[2] == "a" and type(found[3]) is Cell


def test_nodes() -> None:
    cell = Cell()
    holder = [A, 1, (1, "a"), (A,), cell, cell, weakref.ref(cell), len]
    ((_, entries),) = walked(holder).holders[0].tables
    kinds = [type(node) for _, node in entries]
    assert kinds == [TensorAt, ValueAt, ValueAt, TupleAt, ObjectAt, ObjectAt, WeakAt, ValueAt]
    assert entries[4][1] == entries[5][1] == entries[6][1].target == ObjectAt(1)


def test_weak_references_to_what_is_gone_are_constants() -> None:
    cell = Cell()
    holder = [weakref.ref(cell), weakref.proxy(cell), weakref.WeakMethod(cell.method)]
    assert len(walked(holder).holders) > 1
    del cell
    objects = walked(holder)
    ((_, entries),) = objects.holders[0].tables
    assert len(objects.holders) == 1 and all(isinstance(node, ValueAt) for _, node in entries)


def test_the_position_of_an_object() -> None:
    inner = Cell()
    objects = walked([inner])
    assert objects.position_of(inner) == 1 and objects.position_of(Cell()) is None
    objects._position[id(A)] = 1  # as the id of an object that is gone
    assert objects.position_of(A) is None


def test_ids_of_tensors_become_those_of_the_others() -> None:
    """An id may be a key, a value or an element, and stand in a tuple. Other numbers, and what holds none, stay."""
    value = [{id(A): 1, (id(B), "k"): 2, 5: A}, [id(B), (7, id(A))], {"n": 7}]
    objects, others = walked(value), {id(A): 1000, id(B): 2000}
    before = read(objects)
    with objects.restored():
        objects.put([A], lambda holder: None, False, others)
        assert value == [{1000: 1, (2000, "k"): 2, 5: A}, [2000, (7, 1000)], {"n": 7}]
    assert read(objects) == before
    assert value == [{id(A): 1, (id(B), "k"): 2, 5: A}, [id(B), (7, id(A))], {"n": 7}]


def test_numbers_that_change_are_tensors_of_that_size() -> None:
    value = Cell(steps=5, first=1, other=5)
    objects = walked(value, changing=("x.steps", "x.first"))
    (held,) = objects.tensors
    assert (held.path, held.is_number, held.tensor.shape) == ("x.steps", True, (5, 0))
    assert isinstance(dict(objects.holders[0].tables[0][1])["steps"], NumberAt)
    objects.put([torch.empty(7, 0)], lambda holder: None, False, {})
    assert vars(value) == {"steps": 7, "first": 1, "other": 5}


def test_iterators_have_stand_ins() -> None:
    steps = iter([1, 2])
    objects = Objects()
    objects.leaf(0, steps, "args[0]")
    holder = [steps]
    objects.leaf(1, holder, "args[1]")
    ((position, stand_in),) = objects.replaced_leaves([], stand_ins=True)
    assert position == 0 and stand_in.iterator is steps
    with objects.restored():
        objects.put([], lambda holder: None, True, {})
        assert holder[0].iterator is steps  # type: ignore[attr-defined]
        objects.put([], lambda holder: None, False, {})
    assert holder == [steps] and next(steps) == 1


def test_what_is_put_on_a_tensor() -> None:
    tensor: Any = torch.ones(2)
    tensor.scale = A
    objects = walked([tensor])
    assert [h.path for h in objects.tensors] == ["x[0]", "x[0].scale"]
    fake: Any = torch.zeros(2)
    with objects.restored():
        objects.put([fake, B], lambda holder: fake, False, {})
        assert fake.scale is B
    assert tensor.scale is A


def test_a_list_that_a_function_only_appends_to() -> None:
    log: list[Any] = [A]
    objects = Objects()
    objects.root(lambda: log.append(1), "fn", True)
    position = objects.position_of(log)
    assert position is not None and objects.holders[position].only_grows and not objects.tensors
    objects.root(lambda: log[0], "other", True)  # somebody else reads it
    assert not objects.holders[position].only_grows and [h.path for h in objects.tensors] == ["log[0]"]


def test_what_is_the_same_at_each_call() -> None:
    """What a pinned object holds is pinned, and what a module holds."""
    objects = Objects()
    objects.root([A], "held", True)
    objects.root([[B], Layer()], "args", False)
    assert {h.path: h.pinned for h in objects.tensors} == {
        "held[0]": True, "args[0][0]": False, "args[1].cache[0]": True
    }  # fmt: skip


def test_long_chains_are_no_recursion() -> None:
    chain: list[Any] = [A]
    for _ in range(5000):
        chain = [chain]
    objects = walked(chain)
    assert len(objects.holders) == 5001 and objects.tensors[0].tensor is A


def test_arrays_are_watched() -> None:
    array = numpy.zeros(2)
    objects = walked([array])
    objects.refuse_changed()
    array[0] = 1
    with pytest.raises(MutationError, match=r"^x\[0\]: "):
        objects.refuse_changed()


class Number(int):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {(1, (A,)): 1}, "^x: a key is a tuple"),
        (lambda: [{A}], r"^x\[0\]: a set that holds tensors"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        walked(make())


def test_keys_that_are_no_tensors_are_fine() -> None:
    refuse_key((1, ("a", 2.0)), "x")
    with pytest.raises(PlanError, match="^x: a key"):
        refuse_key((1, ("a", A)), "x")


class Callable_(Cell):
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("fn", "names"),
    [
        (closure, ["fn"]),
        (functools.partial(closure), ["fn"]),
        (functools.cache(closure), ["fn"]),
        (Cell().method, ["self", "method"]),
        (len, []),
        (Cell, []),
        (Layer(), ["self"]),
        (Callable_(), ["self", "__call__"]),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_a_function_brings(fn: Any, names: list[str]) -> None:
    parts = list(parts_of(fn))
    assert [name for name, _ in parts] == names
    owner = fn.__self__ if isinstance(fn, types.MethodType) else fn
    assert not parts or parts[0][1] is owner


def test_which_nodes_are_replaced() -> None:
    ((_, entries),) = walked([1, A, (A,), [A]]).holders[0].tables
    assert [is_replaced(node) for _, node in entries] == [False, True, True, False]
