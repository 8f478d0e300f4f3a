"""What a function does to objects is read once, and generated code does it again to other objects."""

from __future__ import annotations

import functools
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from subclass_aot.base.codegen import Source
from subclass_aot.engine.objects import Objects
from subclass_aot.engine.outcome import emit_finish, read_outcome

A, B = torch.ones(1), torch.ones(2)


class Point(NamedTuple):
    x: Any
    y: Any


class Cell:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


class Slotted:
    __slots__ = ("x", "y")


class Loud(dict[Any, Any]):
    """Its own methods do more, and that is among the changes by itself."""

    def __setitem__(self, key: Any, value: Any) -> None:
        dict.__setitem__(self, key, value)
        dict.__setitem__(self, "changes", self.get("changes", 0) + 1)


class Rows(deque[Any]):
    pass


class Tables(defaultdict[Any, Any]):
    pass


def slotted() -> Slotted:
    made = Slotted()
    made.x = 1
    return made


def shown(value: Any, known: dict[int, int]) -> Any:
    """What can be told of a value: classes, contents in their order, and which objects are one."""
    if isinstance(value, torch.Tensor) or type(value) in (int, str, type(None), type, float):
        return value
    if isinstance(value, weakref.ref):
        return "weakly", shown(value(), known)
    if id(value) in known:
        return known[id(value)]
    known[id(value)] = len(known)
    parts: list[Any] = [type(value), getattr(value, "maxlen", None), getattr(value, "default_factory", None)]
    if isinstance(value, dict):
        parts += [(key if isinstance(key, torch.Tensor) else shown(key, known), shown(v, known))
                  for key, v in (OrderedDict if isinstance(value, OrderedDict) else dict).items(value)]  # fmt: skip
    elif isinstance(value, list | tuple | deque | set):
        parts += [shown(v, known) for v in value]
    elif isinstance(value, types.FunctionType):
        parts += [shown(cell.cell_contents, known) for cell in value.__closure__ or ()]
    elif isinstance(value, functools.partial):
        parts += [value.func, shown(value.args, known), shown(value.keywords, known)]
    parts += [(n, shown(getattr(value, n), known)) for n in getattr(type(value), "__slots__", ()) if hasattr(value, n)]
    if not isinstance(value, types.FunctionType):
        parts += [(n, shown(v, known)) for n, v in getattr(value, "__dict__", {}).items()]
    return tuple(parts)


def counter() -> Any:
    count: Any = 0

    def step(new: Any) -> Any:
        nonlocal count
        count = new

    return step


def put(holder: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(holder, name, value)


def add_link(args: Any) -> Any:
    made: Any = Cell(x=A)
    made.itself = [made]
    args.append(made)
    return made, weakref.ref(made)


def reordered(args: Any) -> None:
    args["a"] = args.pop("a")
    args["c"] = A


PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "nothing": (lambda: [1], lambda args: None),
    "results": (lambda: [1], lambda args: {"a": [A, (B, 1)], "p": Point(A, [B]), "s": {2}}),
    "what was given": (lambda: [[1], 2], lambda args: [args[0], args]),
    "append": (lambda: [1], lambda args: args.append(A)),
    "append to a deque": (lambda: deque([1], 2), lambda args: args.append(A)),
    "a full deque": (lambda: deque([1, 2], 2), lambda args: args.append(A)),
    "insert": (lambda: [1, 2], lambda args: args.insert(0, A)),
    "clear": (lambda: [1, 2], lambda args: args.clear()),
    "reverse": (lambda: [[1], [2]], lambda args: args.reverse()),
    "add": (lambda: {1}, lambda args: args.add("a")),
    "discard": (lambda: {1, 2}, lambda args: args.discard(1)),
    "assign items": (lambda: {"a": 1}, lambda args: args.update(a=A, b=[B])),
    "delete an item": (lambda: {"a": 1, "b": 2}, lambda args: args.pop("a") and None),
    "another order": (lambda: OrderedDict(a=1, b=2), reordered),
    "move": (lambda: OrderedDict(a=1, b=2), lambda args: args.move_to_end("a")),
    "an item of a tensor": (lambda: {}, lambda args: args.update({A: B})),
    "a dict of a user": (Loud, lambda args: args.__setitem__("a", A)),
    "attributes": (lambda: Cell(a=1, b=2), lambda args: (delattr(args, "a"), put(args, b=A, c=B)) and None),
    "slots": (slotted, lambda args: (delattr(args, "x"), put(args, y=A)) and None),
    "closure": (counter, lambda args: args(A)),
    "exchange": (lambda: Cell(a=[1], b=[2]), lambda args: put(args, a=args.b, b=args.a)),
    "deeper": (lambda: [Cell(a={"k": [1]})], lambda args: args[0].a["k"].append(A)),
    "behind what changes": (lambda: [[1], [2]], lambda args: (args[1].append(A), args.pop(0)) and None),
    "new objects": (lambda: [], lambda args: args.extend([Cell(x=A), slotted(), Rows([A], 3), deque([B], 2)])),
    "new dicts": (lambda: [], lambda args: args.extend([Loud(a=A), Tables(list, a=B), defaultdict(set, b=A)])),
    "one new object twice": (lambda: [], lambda args: args.extend([Cell(x=A)] * 2)),
    "an object that holds itself": (lambda: [], add_link),
}  # fmt: skip


def repeated(program: Callable[[Any], Any], first: Any, other: Any) -> Any:
    """Runs a program on one object, and does to another what it did."""
    seen = Objects()
    seen.root(first, "args", False)
    leaves, outcome, _ = read_outcome(seen, program(first))
    source = Source("finish", "args, results")
    text = emit_finish(source, outcome, [], [f"results[{i}]" for i in range(len(leaves))])
    source.line(f"return {text}")
    return source.build()(other, leaves)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_done_again_is_what_was_done(name: str) -> None:
    """The oracle is the program itself, run on a third object."""
    make, program = PROGRAMS[name]
    other, third = make(), make()
    result = repeated(program, make(), other)
    assert shown([other, result], {}) == shown([third, program(third)], {})


def test_new_objects_are_new_at_each_call() -> None:
    made: list[Any] = []
    for _ in range(2):
        other: list[Any] = []
        repeated(lambda args: args.append(Cell(x=[A])), [], other)
        made += other
    assert made[0] is not made[1] and made[0].x is not made[1].x


def test_the_constructor_of_a_class_is_not_run_again() -> None:
    class Counted(Cell):
        count = 0

        def __init__(self) -> None:
            type(self).count += 1
            self.x = A

    (made,) = repeated(lambda args: (Counted(),), [], [])
    assert type(made) is Counted and made.x is A and Counted.count == 1


def test_objects_of_torchs_pytree_are_made_by_it() -> None:
    from transformers.modeling_outputs import BaseModelOutput

    made = repeated(lambda args: BaseModelOutput(last_hidden_state=A), [], [])
    assert type(made) is BaseModelOutput and made.last_hidden_state is A and made[0] is A
