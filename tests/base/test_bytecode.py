"""What functions do, as their bytecode tells. What is not known means "something else"."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from subclass_aot.base import bytecode
from subclass_aot.base.bytecode import (
    Step,
    attributes_of_global,
    attributes_read,
    is_raise_statement,
    named_globals,
    names_in,
    only_appends,
    reads_of,
    stored_globals,
    stores_of,
    uses_of,
    with_calls_of_others,
)

STATE: list[Any] = []
LIMIT = 3


def test_nobody_else_reads_bytecode() -> None:
    """A new Python has other instructions, so that one file has to change and not six."""
    found = []
    for path in Path(bytecode.__file__).parents[1].rglob("*.py"):
        imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import)]
        found += [path.name for node in imports if any(alias.name == "dis" for alias in node.names)]
    assert found == ["bytecode.py"]


def puts_together(self: Any) -> Any:
    return ["a", "b"], {"scale": self.scale, "sizes": (self.rows, self.scale)}


def calls(self: Any) -> Any:
    return ["a"], self.scale.item()


def asks_another(self: Any) -> Any:
    return ["a"], STATE[0].scale


def branches(self: Any) -> Any:
    return ["a"], self.scale if self.rows else None


@pytest.mark.parametrize(
    "function, expected",
    [
        (puts_together, ("scale", "rows")),
        (calls, None),
        (asks_another, None),
        (branches, None),
        (lambda x, y: x.a, None),
    ],
)
def test_attributes_that_are_read(function: Callable[..., Any], expected: tuple[str, ...] | None) -> None:
    assert attributes_read(function.__code__) == expected


def assigns() -> Callable[[], Any]:
    global STATE

    def inside() -> Any:
        global LIMIT
        LIMIT = LIMIT + 1
        return len(STATE)

    STATE = []
    return inside


def test_globals_of_a_function_and_those_inside() -> None:
    assert set(stored_globals(assigns.__code__)) == {"STATE", "LIMIT"}
    assert {"STATE", "LIMIT", "len"} <= set(names_in(assigns.__code__))
    assert not list(stored_globals(asks_another.__code__))


class Below:
    """Names of its own, beside globals of the same names."""

    limit = LIMIT

    def reads(self: Any, STATE: Any) -> Any:
        LIMIT = self.LIMIT
        return STATE.names_in(LIMIT), self.bytecode.dis, [self.puts_together for self.calls in STATE]

    def comprehensions(self: Any) -> Any:
        return [x for x in STATE], {x: LIMIT for x in self.calls}, (y for y in appends(1) if y > keeps)

    def classes(self: Any) -> Any:
        class Inside(Below):
            limit = LIMIT
            STATE = self.STATE

            def method(self, calls: Any = branches) -> Any:
                return self.catches

        return Inside

    def deletes(self: Any) -> None:
        global branches, calls
        del branches
        self.STATE = calls = 1

    def typed(self: Any, x: Any) -> Any:
        y: LIMIT = x
        return lambda LIMIT=STATE: (LIMIT, self.__class__, y)


@pytest.mark.parametrize(
    "function, expected",
    [
        (Below.reads, set()),
        (Below.comprehensions, {"STATE", "LIMIT", "appends", "keeps"}),
        (Below.classes, {"Below", "LIMIT", "branches", "__name__"}),
        (Below.deletes, {"branches", "calls"}),
        (Below.typed, {"STATE"}),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_globals_and_no_attributes(function: Callable[..., Any], expected: set[str]) -> None:
    assert set(named_globals(function.__code__)) - {"__conditional_annotations__"} == expected
    assert set(names_in(function.__code__)) >= expected


def reads_attributes(x: Any) -> Any:
    bytecode.dis = x.STATE
    return bytecode.dis.hasattr, (lambda: bytecode.names_in(x.LIMIT)), [bytecode.types.a for _ in x]


def holds_it(x: Any) -> Any:
    module = bytecode
    return module.dis, x.STATE


def test_attributes_of_a_global() -> None:
    found = attributes_of_global(reads_attributes.__code__, "bytecode")
    assert set(found) == {"dis", "names_in", "types"}
    assert {"dis", "STATE"} <= set(attributes_of_global(holds_it.__code__, "bytecode")), "what it does is not seen"
    assert not list(attributes_of_global(holds_it.__code__, "STATE"))


def appends(x: Any) -> None:
    STATE.append(x)
    STATE.extend([x])


@pytest.mark.parametrize("function, expected", [(appends, True), (asks_another, False), (assigns, False)])
def test_what_is_only_appended_to(function: Callable[..., Any], expected: bool) -> None:
    assert only_appends(function.__code__, "STATE") is expected


def keeps(x: Any) -> Any:
    STATE[0] = x
    return x.a


def catches(x: Any) -> Any:
    try:
        return x.a
    except AttributeError:
        return None


def same(x: Any) -> Any:
    return x.a is x.b


def rule(x: Any) -> Any:
    rows = max(x.codes.shape)
    return (rows, x.scale.dtype) if x.codes is not None else None


def test_reads_of_a_rule() -> None:
    found = reads_of(rule.__code__)
    assert found == ({"max"}, {"codes", "shape", "scale", "dtype"})


@pytest.mark.parametrize("function", [keeps, catches, same, lambda *x: x, lambda x, y: x, lambda x: lambda: x.a])
def test_a_rule_that_may_do_more(function: Callable[..., Any]) -> None:
    assert reads_of(function.__code__) is None


def test_stores() -> None:
    def init(self: Any, value: Any) -> None:
        self.value = value
        known = {}
        known["a"] = LIMIT
        value.other = len(known)
        STATE[0] = value

    found = stores_of(init.__code__)
    assert found.set_attributes == ["value"] and found.read == ["len"]
    assert found.others == ["init sets other of something else", "init sets an element of something else"]
    (stored,) = stores_of(assigns.__code__).others
    assert stored == "assigns has STORE_GLOBAL STATE"


def test_stores_into_what_others_have() -> None:
    """Also where a Python has one instruction for two of others, or a jump leads to a store."""

    def on_two_lines(value: Any, key: Any) -> None:
        known: Any = {}
        value[key] = (
            known
        )  # fmt: skip

    def of_a_slice(value: Any) -> None:
        value[0:1] = [1]

    def of_either(value: Any) -> None:
        known = value or {}
        known["a"] = 1

    def of_what_is_given(value: Any, known: Any) -> None:
        if value:
            known = {}
        known["a"] = 1

    def of_another(value: Any) -> None:
        known: Any = {}
        known = value; other = known  # noqa: E702  # fmt: skip
        known["a"] = other

    def of_its_own(value: Any, key: Any) -> Any:
        known: Any = {}
        known[key] = value
        known["a"] = value
        known[key] = 1
        return known

    for function in (on_two_lines, of_a_slice, of_either, of_what_is_given, of_another):
        assert stores_of(function.__code__).others == [f"{function.__name__} sets an element of something else"]
    assert stores_of(of_its_own.__code__).others == []


def test_what_raises_and_what_calls_something_that_does() -> None:
    def by_name() -> None:
        raise ValueError

    def by_assertion(x: int = 1) -> None:
        assert x == 2

    def called() -> None:
        int("one")

    for function, expected in ((by_name, True), (by_assertion, True), (called, False)):
        try:
            function()
        except (ValueError, AssertionError) as error:
            assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
            inner = error.__traceback__.tb_next
            assert is_raise_statement(inner.tb_frame.f_code, inner.tb_lasti) is expected


def test_code_that_has_no_hash() -> None:
    """Dynamo makes such code."""

    def stores(x: int) -> None:
        global _stored_here
        _stored_here = x

    odd = stores.__code__.replace(co_consts=(*stores.__code__.co_consts, {}))
    assert list(stored_globals(odd)) == list(stored_globals(stores.__code__)) == ["_stored_here"]


def reads_parts(x: Any, s: Any, o: Any) -> Any:
    return x * s["scale"] + s.get("shift", 0) + o.inner["a"] + o.inner["b"] + o.rows[-1] + s.get("last")


def asks_for_a_key(x: Any, s: Any) -> Any:
    return x if "scale" in s else s["other"]["a"]


def reads_it_all(s: Any) -> Any:
    return s["a"]["b"] + len(s["a"])


def unread(x: Any, name: Any, *args: Any, key: Any = None, **kwargs: Any) -> Any:
    return x + args[0]


def stores(x: Any, s: Any, o: Any, t: Any, u: Any, v: Any) -> Any:
    s["a"] = x
    t["a"] += 1
    del u["a"]
    v = v["a"]
    o.a = x
    return v


def inside(x: Any, s: Any) -> Any:
    return (lambda: s["a"])() + x


def by_name(x: Any, s: Any) -> Any:
    return x, s["a"], locals()


def later(x: Any, s: Any) -> Any:
    yield x * s["a"]


def calls_methods(x: Any, s: Any, t: Any, u: Any, v: Any) -> Any:
    return s.items(), t.get(x), u.get("a", x), v["a"].append(x)


def either(x: Any, s: Any, t: Any) -> Any:
    return (s if x else t)["a"], (x if x else "a") in s


def sliced(x: Any, s: Any) -> Any:
    return s[:2], s[x]


_ITEM_A, _GET = Step("item", "a"), "get"


@pytest.mark.parametrize(
    "function, expected",
    [
        (
            reads_parts,
            {
                "x": None,
                "s": {Step("item", "scale"): None, Step(_GET, "shift"): None, Step(_GET, "last"): None},
                "o": {
                    Step("attribute", "inner"): {_ITEM_A: None, Step("item", "b"): None},
                    Step("attribute", "rows"): {Step("item", -1): None},
                },
            },
        ),
        (asks_for_a_key, {"x": None, "s": {Step(_GET, "scale"): None, Step("item", "other"): {_ITEM_A: None}}}),
        (reads_it_all, {"s": {_ITEM_A: None}}),
        (unread, {"x": None, "name": {}, "args": {Step("item", 0): None}, "key": {}, "kwargs": {}}),
        (stores, dict.fromkeys("xsotuv")),
        (inside, {"x": None, "s": None}),
        (by_name, {"x": None, "s": None}),
        (later, {"x": None, "s": None}),
        (calls_methods, {"x": None, "s": None, "t": None, "u": None, "v": {_ITEM_A: None}}),
        (either, {"x": None, "s": None, "t": {_ITEM_A: None}}),
        (sliced, {"x": None, "s": None}),
    ],
)
def test_uses_of_arguments(function: Callable[..., Any], expected: Any) -> None:
    """The parts that a function names by constants are all that it reads; whatever else it does reads all."""
    assert uses_of(function.__code__) == expected


def test_calls_of_others() -> None:
    def program(n: Any, *more: Any) -> Any:
        kinds = [int, map]
        try:
            found = [int(n), *map(int, more), max([int(k) for k in more], key=int), int("12", base=3), kinds[0](n)]
            return found + [float(x) for x in found]  # noqa: TRY300
        except TypeError as error:
            return [error.__traceback__.tb_lineno, int]  # type: ignore[union-attr]

    def other(*args: Any, **kwargs: Any) -> Any:
        return ("int", *args, *kwargs.values())

    code = with_calls_of_others(program.__code__, {"int": other})
    assert code is not program.__code__ and len(code.co_code) == len(program.__code__.co_code)
    changed = FunctionType(code, program.__globals__)
    text = {"max": lambda x, key: (x, key is int), "float": lambda x: x}
    changed = FunctionType(code, {**globals(), **text})
    found = changed(2.5, "a", None)
    assert found[:3] == [("int", 2.5), ("int", "a"), ("int", None)]
    assert found[3] == ([("int", "a"), ("int", None)], True)
    assert found[4:6] == [("int", "12", 3), 2]
    assert changed(None)[0] == program(None)[0] and changed(None)[1] is int
    assert with_calls_of_others(other.__code__, {"int": other}) is other.__code__


def test_calls_of_others_in_a_function_with_many_names_and_constants() -> None:
    numbers = ", ".join(f"{i}.5 + name_{i}" for i in range(400))
    names: dict[str, Any] = {f"name_{i}": i for i in range(400)}
    exec(f"def program(n):\n    return [{numbers}, int(n), int(n)]", names)  # noqa: S102
    code = with_calls_of_others(names["program"].__code__, {"float": float, "int": lambda n: "other"})
    assert FunctionType(code, names)(3)[-2:] == ["other", "other"]
    assert FunctionType(code, names)(3)[:-2] == names["program"](3)[:-2]
