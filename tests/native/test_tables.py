"""Tensors compared and read in C++: the guards that are generated without it say the same of every call."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import TwoTensor, WrapperTensor, aot_compile
from subclass_aot.engine.objects import same_constant
from tests.native.both_ways import in_threads
from tests.native.places import run_natively

ones = torch.ones


class Noted(WrapperTensor, fallback="each"):
    value: torch.Tensor
    note: Any = None
    more: torch.Tensor | None = None


Maker = Callable[[], torch.Tensor]

# What one value of a call may be, twice: as it is in the first call, and as it may be in the second.
VALUES: list[tuple[str, Maker]] = [
    ("dense", lambda: ones(2)),
    ("float64", lambda: ones(2, dtype=torch.float64)),
    ("longer", lambda: ones(3)),
    ("with gaps", lambda: ones(4)[::2]),
    ("later in its storage", lambda: ones(4)[2:]),
    ("requires grad", lambda: ones(2, requires_grad=True)),
    ("with a history", lambda: ones(2, requires_grad=True) * 1),
    ("parameter", lambda: torch.nn.Parameter(ones(2))),
    ("frozen parameter", lambda: torch.nn.Parameter(ones(2), requires_grad=False)),
    ("conjugate", lambda: ones(2, dtype=torch.complex64).conj()),
    ("complex", lambda: ones(2, dtype=torch.complex64)),
    ("inference", lambda: _in_inference_mode(lambda: ones(2))),
    ("without data", lambda: ones(2, device="meta")),
    ("two", lambda: TwoTensor(ones(2), ones(2))),
    ("two, of which one is longer", lambda: TwoTensor(ones(2), ones(3))),
    ("two of float64", lambda: TwoTensor(ones(2), ones(2, dtype=torch.float64))),
    ("two that require grad", lambda: TwoTensor(ones(2), ones(2)).requires_grad_()),
    ("two with a history", lambda: TwoTensor(ones(2), ones(2)).requires_grad_() * 1),
    ("one twice", lambda: _twice(lambda x: TwoTensor(x, x))),
    ("nested", lambda: TwoTensor(TwoTensor(ones(2), ones(2)), ones(2))),
    ("nested, the same inside", lambda: _twice(lambda x: TwoTensor(TwoTensor(x, ones(2)), x))),
    ("foreign", lambda: ForeignTensor(ones(2), ones(2))),
    ("foreign inside", lambda: TwoTensor(ForeignTensor(ones(2), ones(2)), ones(2))),
    ("noted", lambda: Noted(ones(2))),
    ("noted 1", lambda: Noted(ones(2), 1)),
    ("noted True", lambda: Noted(ones(2), True)),
    ("noted (1, 'a')", lambda: Noted(ones(2), (1, "a"))),
    ("noted nan", lambda: Noted(ones(2), float("nan"))),
    ("noted -0.0", lambda: Noted(ones(2), -0.0)),
    ("noted 0.0", lambda: Noted(ones(2), 0.0)),
    ("with more", lambda: Noted(ones(2), None, ones(2))),
    ("a number", lambda: ones(())),
    ("sparse", lambda: ones(2).to_sparse()),
]
NUMBERS = st.integers(0, len(VALUES) - 1)


def _in_inference_mode(make: Maker) -> torch.Tensor:
    with torch.inference_mode():
        return make()


def _twice(make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return make(ones(2))


def _calls_made(values: list[Any], others: list[list[Any]], in_list: bool) -> list[Any]:
    """What comes of a call, and of others after it: results, or errors, and how often it was compiled by then."""

    def fn(*args: Any) -> Any:
        return [x * 2 for x in (args[0] if in_list else args)]

    compiled = aot_compile(fn)
    found: list[Any] = []
    for call in (values, *others):
        try:
            found.append([(type(x), x.shape, x.dtype) for x in compiled(*([call] if in_list else call))])
        except Exception as error:  # noqa: BLE001 - both ways the same one
            found.append(type(error))
        found.append(len(compiled._specializations))
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), in_list=st.booleans(), mode=st.sampled_from([torch.enable_grad, torch.no_grad]))
def test_both_ways_the_same_calls_fit(
    data: st.DataObject, in_list: bool, mode: Any, built: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = data.draw(st.lists(NUMBERS, min_size=1, max_size=4), "values")
    values = [VALUES[number][1]() for number in numbers]
    others = []
    for _ in range(3):  # the same again; one is another; one stands twice
        again = [VALUES[number][1]() for number in numbers]
        how, at = data.draw(st.sampled_from(["same", "other", "twice", "fewer"])), data.draw(NUMBERS) % len(again)
        if how == "other":
            again[at] = VALUES[data.draw(NUMBERS, "other")][1]()
        elif how == "twice":
            again[at] = again[data.draw(NUMBERS) % len(again)]
        elif how == "fewer":
            again = again[:-1] or again
        others.append(again)
    if data.draw(st.booleans(), "alias"):
        values[-1] = values[0]
    with mode():
        run_natively(monkeypatch, None)
        in_python = _calls_made(values, others, in_list)
        run_natively(monkeypatch, built)
        in_cpp = _calls_made(values, others, in_list)
    assert in_python == in_cpp


@pytest.mark.parametrize("second", range(len(VALUES)), ids=[name for name, _ in VALUES])
def test_each_value_after_each(second: int, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """One changed fact: a guard that was made for one look lets no other pass that the generated one refuses."""
    found = []
    for module in (None, built):
        run_natively(monkeypatch, module)
        others = [[make()] for _, make in VALUES]
        found.append(_calls_made([VALUES[second][1]()], others[second % 8 :: 8] + [[VALUES[second][1]()]], False))
    assert found[0] == found[1]


def leaf(is_leaf: bool | None = None) -> Any:
    return is_leaf, None


def wrapper(*inner: Any, names: tuple[str, ...] = ("a", "b"), **changed: Any) -> Any:
    given: dict[str, Any] = {"constants": {}, "absent": ()} | changed
    return None, (names, inner, *given.values())


def table(built: ModuleType, values: Any, descriptions: Any, *others: torch.Tensor) -> Any:
    sizes, strides = tuple(x.size() for x in others), tuple(x.stride() for x in others)
    return built.Table(tuple(values), tuple(descriptions), others, sizes, strides, same_constant)


def test_it_gives_the_leaves(built: ModuleType) -> None:
    x, y = TwoTensor(TwoTensor(ones(2), ones(2)), ones(2)), ones(3)
    read = table(built, [x, y], [wrapper(wrapper(leaf(), leaf()), leaf()), leaf()])
    found = read((x, y))
    assert [id(each) for each in found] == list(map(id, (x.a.a, x.a.b, x.b, y)))
    assert read([x, y]) is not found and read((x,)) is None and read((y, x)) is None and read((x, y), y) is None
    assert read((x, None)) is None and read((1, y)) is None


def test_which_tensors_are_one(built: ModuleType) -> None:
    a, b = ones(2), ones(2)
    two, one = table(built, [a, b], [leaf(), leaf()]), table(built, [a, a], [leaf(), leaf()])
    assert two((a, b)) and two((a, a)) is None and one((a, a)) and one((a, b)) is None
    across = table(built, [a], [leaf()], b)
    assert across((a,), b) and across((a,), a) is None
    inside = table(built, [TwoTensor(a, a)], [wrapper(leaf(), leaf())], a)
    assert inside((TwoTensor(b, b),), b) and inside((TwoTensor(b, b),), a) is None
    assert inside((TwoTensor(a, b),), a) is None


def test_many_tensors_are_told_apart(built: ModuleType) -> None:
    many = [ones(1) for _ in range(3000)]
    read = table(built, many, [leaf()] * len(many))
    assert read(many) == many
    for i, j in [(0, 2999), (17, 18), (2999, 1500)]:
        assert read([*many[:i], many[j], *many[i + 1 :]]) is None
    assert read([ones(1) for _ in many]) is not None


def test_more_tensors_than_anybody_has(built: ModuleType) -> None:
    many = [ones(1) for _ in range(140_000)]
    read = table(built, many, [leaf()] * len(many))
    assert len(read(many)) == len(many) and read([*many[:-1], many[0]]) is None


def test_sizes_that_may_be_anything(built: ModuleType) -> None:
    read = built.Table((), (), (ones(2, 3),), ((None, 3),), ((None, 1),), same_constant)
    assert read((), ones(5, 3)) == [] and read((), ones(2, 4)) is None and read((), ones(3)) is None


def test_facts_of_a_wrapper(built: ModuleType) -> None:
    x = Noted(ones(2), (1, "a"))
    kinds = {"names": ("value",), "constants": {"note": (1, "a")}, "absent": ("more",)}
    read = table(built, [x], [wrapper(leaf(), **kinds)])
    assert read((x,)) and read((Noted(ones(2), (1, "a")),))
    assert read((Noted(ones(2), (1, "b")),)) is None and read((Noted(ones(2), (True, "a")),)) is None
    assert read((Noted(ones(2), (1, "a"), ones(2)),)) is None


def test_leaves_of_autograd(built: ModuleType) -> None:
    x = ones(2, requires_grad=True)
    read, other = table(built, [x], [leaf(True)]), table(built, [x * 1], [leaf(False)])
    assert read((x,)) and read((x * 1,)) is None and other((x,)) is None and other((x * 1,))


def test_an_attribute_that_is_gone(built: ModuleType) -> None:
    x = TwoTensor(ones(2), ones(2))
    read = table(built, [x], [wrapper(leaf(), leaf())])
    del x.__dict__["b"]
    assert read((x,)) is None


class Lazy(torch.Tensor):
    """Has an attribute that runs code."""

    @property
    def inner(self) -> Any:
        return self.make()  # type: ignore[attr-defined]


def lazy(make: Any) -> Any:
    made: Any = torch.ones(2).as_subclass(Lazy)
    made.make = make
    return made


def test_errors_of_attributes_and_of_classes_come_through(built: ModuleType) -> None:
    def fail(*args: Any) -> Any:
        raise ZeroDivisionError("in the class")

    kept, good = ones(2), TwoTensor(ones(2), ones(2))
    read = table(built, [lazy(lambda: kept)], [wrapper(leaf(), names=("inner",))])
    assert read((lazy(lambda: kept),)) == [kept]
    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="in the class"):
            read((lazy(fail),))
    compared = built.Table((good,), (wrapper(leaf(), leaf(), constants={"a": 1}),), (), (), (), fail)
    with pytest.raises(ZeroDivisionError):
        compared((good,))
    assert read((lazy(lambda: kept),)) == [kept]


def test_a_check_inside_of_a_check(built: ModuleType) -> None:
    """What an attribute runs may call what is being checked."""
    inner, depth = ones(2), []

    def make() -> torch.Tensor:
        if len(depth) < 3:
            depth.append(1)
            assert read((x, other)) == [inner, inner_of_other]
            assert read((x, x)) is None
        return inner

    inner_of_other = ones(2)
    x, other = lazy(lambda: inner), lazy(lambda: inner_of_other)
    kind = wrapper(leaf(), names=("inner",))
    read = table(built, [x, other], [kind, kind])
    x.make = make
    assert read((x, other)) == [inner, inner_of_other] and len(depth) == 3


def test_another_object_each_time(built: ModuleType) -> None:
    """What a property gives may be gone at once, and the next may lie where it lay: it is no other one's double."""
    x = lazy(lambda: TwoTensor(ones(2), ones(2)))
    kind = wrapper(wrapper(leaf(), leaf()), names=("inner",))
    y = lazy(lambda: TwoTensor(ones(2), ones(2)))
    read = table(built, [x, y], [kind, kind])
    assert all(read((x, y)) is not None for _ in range(200))


def test_what_is_no_table(built: ModuleType) -> None:
    with pytest.raises(TypeError, match="a table is of tensors, not of int"):
        table(built, [1], [leaf()])
    with pytest.raises(TypeError, match="strided"):
        table(built, [ones(2).to_sparse()], [leaf()])
    with pytest.raises(TypeError, match="each value has a description"):
        table(built, [ones(2)], [])
    with pytest.raises(AttributeError):
        table(built, [ones(2)], [wrapper(leaf(), names=("a",))])
    with pytest.raises(TypeError, match="takes values"):
        table(built, [ones(2)], [leaf()])(ones(2))


def test_nothing_is_kept_alive(built: ModuleType) -> None:
    x = TwoTensor(ones(2), ones(2))
    read = table(built, [x], [wrapper(leaf(), leaf())], given := ones(2))
    found = read((x,), given)
    dead = [weakref.ref(x), weakref.ref(x.a), weakref.ref(given)]
    del x, given, found
    assert [ref() for ref in dead] == [None] * 3

    class Own(torch.Tensor):
        pass

    cycle: list[Any] = []
    cycle.append(table(built, [ones(2).as_subclass(Own)], [wrapper(names=(), constants={"cycle": cycle})]))
    gone = weakref.ref(Own)
    del Own, cycle
    gc.collect()
    assert gone() is None


def test_memory_stays(built: ModuleType) -> None:
    values = [TwoTensor(ones(2), ones(2)) for _ in range(5)]
    other = TwoTensor(ones(3), ones(3))
    read = table(built, values, [wrapper(leaf(), leaf())] * 5)
    tracemalloc.start()
    for _ in range(100):
        read(values)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20_000):
        read(values)
        read([*values[:4], other])
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000, "an object of one call in ten would be more; torch and the tracer keep some of their own"


def test_threads(built: ModuleType) -> None:
    one, other = TwoTensor(ones(2), ones(2)), ones(2)
    read = table(built, [one, other], [wrapper(leaf(), leaf()), leaf()])
    wrong: list[Any] = []

    def work() -> None:
        x, y = TwoTensor(ones(2), ones(2)), ones(2)
        for _ in range(3000):
            found = read((x, y))
            if found is None or found[0] is not x.a or read((x, x.a)) is not None:
                wrong.append(found)

    in_threads(work)
    assert not wrong
