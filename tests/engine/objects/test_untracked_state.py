"""What a later call could not repeat is refused by name, and what changes between calls is seen."""

from __future__ import annotations

import array
import io
import random
import types
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import aot_compile
from subclass_aot.engine.objects.untracked_state import put_back_generators, refuse_changed, state_of
from subclass_aot.errors import MutationError, OnlyInEagerModeError, PlanError, TraceError

x = torch.ones(2)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a Random": (lambda: random.Random(0), lambda r: r.random()),
    "a Generator": (lambda: numpy.random.default_rng(0), lambda r: r.random()),
    "a RandomState": (lambda: numpy.random.RandomState(0), lambda r: r.rand()),
    "a bit generator": (lambda: numpy.random.PCG64(0), lambda r: r.random_raw()),
    "an array of numpy": (lambda: numpy.zeros(2), lambda a: a.__setitem__(1, 5)),
    "an array of Python": (lambda: array.array("d", [1.0]), lambda a: a.append(2.0)),
    "a bytearray": (lambda: bytearray(b"ab"), lambda a: a.__setitem__(0, 1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_state_of_what_cannot_be_looked_into(name: str) -> None:
    """It stays while nothing happens, is the same for an equal object, and another one after a change."""
    make, change = CHANGES[name]
    value = make()
    before = state_of(value)
    assert before is not None and before == state_of(value) == state_of(make())
    watched = [("held.source", value, before)]
    refuse_changed(watched)
    change(value)
    array_like = not name.endswith(("Random", "enerator", "RandomState"))
    with pytest.raises(MutationError if array_like else TraceError, match=r"^held\.source: the function") as raised:
        refuse_changed(watched)
    assert ("of class " + type(value).__name__ in str(raised.value)) is array_like


@pytest.mark.parametrize("value", [b"ab", "ab", 3, [1], {}, object(), numpy.float64(1.0), iter([1])])
def test_what_shows_no_state(value: object) -> None:
    """Lists and dicts are walked, and what has a hash does not change."""
    assert state_of(value) is None


@pytest.mark.parametrize("make", [lambda: io.StringIO("a\nb\n"), lambda: io.BytesIO(b"a\nb\n")])
@pytest.mark.parametrize("read", [lambda file: file.read(1), next, lambda file: file.seek(1)])
def test_a_file_that_is_read_goes_on_where_it_was(make: Any, read: Any) -> None:
    file = make()
    watched = [("held.file", file, state_of(file))]
    refuse_changed(watched)
    read(file)
    with pytest.raises(OnlyInEagerModeError, match=r"^held\.file: the function reads a file"):
        refuse_changed(watched)
    put_back_generators(watched)
    refuse_changed(watched)
    assert file.tell() == 0


def test_a_file_that_is_written_is_a_log() -> None:
    file = io.StringIO()
    watched = [("held.file", file, state_of(file) or b"")]
    file.write("a line")
    refuse_changed(watched)
    put_back_generators(watched)
    assert file.tell() == 6


def held_generator(make: Callable[[], Any], draw: Callable[[Any], Any]) -> Callable[[], Any]:
    def program() -> Any:
        held = types.SimpleNamespace(source=make())
        return lambda x: x * float(draw(held.source))

    return program


DRAWS: dict[str, Callable[[], Any]] = {
    "random": lambda: lambda x: x * random.random(),
    "numpy.random": lambda: lambda x: x * float(numpy.random.rand()),
    "a Random": held_generator(lambda: random.Random(0), lambda r: r.uniform(0, 1)),
    "a Generator": held_generator(lambda: numpy.random.default_rng(0), lambda r: r.random()),
    "a RandomState": held_generator(lambda: numpy.random.RandomState(0), lambda r: r.rand()),
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_of_python_and_numpy_are_refused_where_no_values_are_read(name: str) -> None:
    compiled = aot_compile(DRAWS[name](), values="refuse")
    for _ in range(2):
        with pytest.raises(TraceError, match="random number") as raised:
            compiled(x)
    assert "torch.rand" in str(raised.value)


def test_a_random_generator_that_is_not_asked_may_be_held() -> None:
    held = types.SimpleNamespace(r=random.Random(0), g=numpy.random.default_rng(0), scale=2.0)
    assert aot_compile(lambda x: x * held.scale)(x).tolist() == [2, 2]


class Key:
    def __init__(self, scale: Any) -> None:
        self.scale = scale


@pytest.mark.parametrize("where", ["argument", "attribute", "closure"])
def test_keys_that_are_objects(where: str) -> None:
    key = Key(x.clone())
    table = {key: 2.0, "other": 1.0}
    programs: dict[str, tuple[Any, Any]] = {
        "argument": (lambda x, table: [x * k.scale * v for k, v in table.items() if k != "other"], table),
        "attribute": (lambda x, o: [x * k.scale * v for k, v in o.table.items() if k != "other"],
                      types.SimpleNamespace(table=table)),
        "closure": (lambda x, _: [x * k.scale * v for k, v in table.items() if k != "other"], None),
    }  # fmt: skip
    program, argument = programs[where]
    compiled = aot_compile(program)
    for scale in (x + 0, x * 3, 2.0, x + 0):
        key.scale = scale
        assert torch.equal(compiled(x, argument)[0], x * scale * 2)
    assert len(compiled.recompiles) == 1


def test_what_is_put_on_keys() -> None:
    def program(x: Any, o: Any) -> Any:
        for key in list(o.table):
            key.last = x * 2
            o.table[key] = x + 1
        o.table[Key(x * 3)] = x
        return o.table

    compiled = aot_compile(program)
    for i in range(1, 3):
        key = Key(1.0)
        holder = types.SimpleNamespace(table={key: None})
        compiled(x * i, holder)
        old, new = holder.table
        assert old is key and key.last.tolist() == [2 * i] * 2 and holder.table[key].tolist() == [i + 1] * 2  # type: ignore[attr-defined]
        assert new.scale.tolist() == [3 * i] * 2


@pytest.mark.parametrize("where", ["argument", "attribute"])
def test_a_key_that_asks_a_tensor_for_a_value_is_refused(where: str) -> None:
    table = {(x, 1): 2.0}
    argument = table if where == "argument" else types.SimpleNamespace(table=table)
    with pytest.raises(PlanError, match="key"):
        aot_compile(lambda x, a: (a, x * 2)[1])(x, argument)


def test_keys_that_are_equal_and_of_other_types() -> None:
    compiled = aot_compile(lambda x, table: [v * (2 if type(k) is bool else 1) for k, v in table.items()])
    for key, expected in [(1, 1.0), (True, 2.0), (1, 1.0), (1.0, 1.0)]:
        assert compiled(x, {key: x})[0].tolist() == [expected] * 2
    assert len(compiled.recompiles) == 2


class Number(int):
    scale: Any = 1.0


class Text(str):
    scale: Any = 1.0


@pytest.mark.parametrize("make", [lambda: Number(3), lambda: Text("a")])
def test_attributes_of_numbers_and_strings(make: Callable[[], Any]) -> None:
    argument = make()
    compiled = aot_compile(lambda x, n: x * n.scale)
    for scale in (1.0, 2.0, 1.0):
        argument.scale = scale
        assert compiled(x, argument).tolist() == [scale] * 2
        other = make()
        other.scale = scale
        assert compiled(x, other).tolist() == [scale] * 2
    argument.scale = x
    assert compiled(x, argument).tolist() == (x * x).tolist(), "a tensor there is an input"


def test_whether_there_is_a_gradient() -> None:
    weight = torch.ones(2, requires_grad=True)

    def program(x: Any) -> Any:
        return weight * x if weight.grad is None else x + weight.grad

    compiled = aot_compile(program)
    assert compiled(x).tolist() == [1, 1]
    weight.grad = torch.ones(2) * 4
    assert compiled(x).tolist() == [5, 5]
    weight.grad = torch.ones(2) * 6
    assert compiled(x).tolist() == [7, 7]
    weight.grad = None
    assert compiled(x).tolist() == [1, 1] and len(compiled.recompiles) == 1


class Restless(TwoTensor):
    """Its context is another one each time."""

    def __tensor_flatten__(self) -> Any:
        return ["a", "b"], object()

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return Restless(inner["a"], inner["b"])


def test_what_looks_other_each_time_is_named() -> None:
    compiled = aot_compile(lambda x: x * 2)
    with pytest.raises(TraceError, match=r"different each time it is read[^\0]*same_layout") as raised:
        compiled(Restless(x, x))
    assert "__metadata_guard__" in str(raised.value)
    assert compiled(x).tolist() == [2, 2]


def test_an_array_that_is_written_is_refused() -> None:
    held = types.SimpleNamespace(count=numpy.zeros(2))

    def program(x: Any) -> Any:
        held.count += 1
        return x

    with pytest.raises(MutationError, match="held.count"):
        aot_compile(program)(x)


class Optional(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight: Any = torch.nn.Parameter(torch.ones(2))
        self.weight.scale = torch.ones(2) * 3

    def forward(self, x: Any) -> Any:
        return x if self.weight is None else x * self.weight * self.weight.scale


def test_a_parameter_that_has_attributes_is_taken_away() -> None:
    module = Optional()
    weight = module.weight
    compiled = aot_compile(module)
    for now, expected in [(weight, 3.0), (None, 1.0), (weight, 3.0)]:
        module.weight = now
        assert compiled(x).tolist() == [expected] * 2
    assert len(compiled.recompiles) == 1


def test_too_many_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subclass_aot.engine.objects.walk.LIMIT", 5)
    many = types.SimpleNamespace(rows=[types.SimpleNamespace(x=x) for _ in range(10)])
    for program, args, path in [
        (lambda x, o: x * next(iter(o.rows)).x, (many,), r"args\[1\]"),
        (lambda x: x * many.rows[0].x, (), "many"),
    ]:
        with pytest.raises(PlanError, match=f"^{path}: more than 5 Python objects are reached from here"):
            aot_compile(program)(x, *args)


def test_tensors_are_not_counted_as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace looks at each tensor that it gives the program, for what the program puts on it."""
    monkeypatch.setattr("subclass_aot.engine.objects.walk.LIMIT", 5)
    many = [TwoTensor(x, x) for _ in range(10)]
    assert aot_compile(lambda many: [many[0] + many[9]])(many)[0].a.tolist() == [2.0, 2.0]


def test_a_traced_program_is_told_that_it_is_compiled() -> None:
    """Libraries then leave out what reads values, as they do for `torch.compile`."""
    seen = []

    def program(x: Any) -> Any:
        seen.append(torch.compiler.is_compiling())
        return x * 2 if torch.compiler.is_compiling() else x * float(x.sum())

    assert aot_compile(program)(x).tolist() == [2, 2] and not torch.compiler.is_compiling()
    with pytest.raises(ZeroDivisionError):
        aot_compile(lambda x: 1 / 0)(x)
    assert not torch.compiler.is_compiling()
