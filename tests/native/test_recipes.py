"""Wrappers made in C++ are those that generated Python makes, in every property of a tensor."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import Int8Weight, Outer, TwoTensor, WrapperTensor
from subclass_aot.kit.flatten import FlattenPlan, replay
from tests.classes import Flat
from tests.native.both_ways import in_threads
from tests.native.places import run_natively

ones = torch.ones


class Noted(WrapperTensor, fallback="each"):
    value: torch.Tensor
    note: Any = None
    real: torch.Tensor | None = None  # type: ignore[assignment]  # the name of a property of torch's
    more: torch.Tensor | None = None


class Turned(WrapperTensor, fallback="error"):
    value: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer(
            size=self.value.shape[::-1],
            stride=(1, 7),
            dtype=torch.complex64,
            device=self.value.device,
            storage_offset=3,
        )


class Parts(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]
    named: dict[str, torch.Tensor]


class Given(torch.Tensor):
    """Of another library: it says which attributes it has, and nothing else is declared."""

    @staticmethod
    def __new__(cls, value: torch.Tensor, note: str) -> Given:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, value.shape, dtype=value.dtype)
        made.value, made.note = value, note
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], self.note  # type: ignore[attr-defined]

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Given:
        return Given(inner["value"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


MAKERS: dict[str, Callable[[], torch.Tensor]] = {
    "two": lambda: TwoTensor(ones(2, 3), ones(2, 3)),
    "nested": lambda: TwoTensor(TwoTensor(ones(2), ones(2)), ones(2)),
    "deep": lambda: TwoTensor(TwoTensor(TwoTensor(ones(2), ones(2)), ones(2)), TwoTensor(ones(2), ones(2))),
    "of another library": lambda: ForeignTensor(ones(2, 3), ones(2, 3)),
    "of two libraries": lambda: TwoTensor(ForeignTensor(ones(2), ones(2)), ones(2)),
    "flat": lambda: Flat(ones(6), (2, 3)),
    "given": lambda: Given(ones(2), "a"),
    "transposed": lambda: TwoTensor(ones(2, 3).t(), ones(2, 3).t()),
    "with gaps": lambda: TwoTensor(ones(4, 6)[::2, 1::2], ones(4, 6)[::2, 1::2]),
    "expanded": lambda: TwoTensor(ones(1, 3).expand(4, 3), ones(1, 3).expand(4, 3)),
    "a number": lambda: TwoTensor(ones(()), ones(())),
    "empty": lambda: TwoTensor(ones(0, 3), ones(0, 3)),
    "of six dims": lambda: TwoTensor(ones(1, 2, 1, 2, 1, 2), ones(1, 2, 1, 2, 1, 2)),
    "without data": lambda: TwoTensor(ones(2, device="meta"), ones(2, device="meta")),
    "context": lambda: Noted(ones(2), ("a", 1.5)),
    "an attribute called real": lambda: Noted(ones(2), None, ones(3)),
    "a gap among its fields": lambda: Noted(ones(2), more=ones(4)),
    "an outside of its own": lambda: Turned(ones(7, 2)),
    "lists": lambda: Parts([ones(2), ones(3)], {"x": ones(2)}),
    "weight": lambda: Int8Weight.from_float(ones(4, 4)),
    **{
        str(dtype): lambda dtype=dtype: TwoTensor(torch.zeros(2, dtype=dtype), torch.zeros(2, dtype=dtype))
        for dtype in (torch.float64, torch.bfloat16, torch.complex64, torch.int8, torch.bool, torch.float8_e4m3fn)
    },
}
MODES = {"": torch.enable_grad, "no_grad": torch.no_grad, "inference mode": torch.inference_mode}


@pytest.fixture(autouse=True)
def _not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MODE", "1")  # there each replay calls the class, too


def wraps(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None, x: torch.Tensor
) -> Callable[[list[Any]], torch.Tensor]:
    """What makes wrappers like `x` of leaves; what is watched once has been watched."""
    run_natively(monkeypatch, module, "recipes")
    plan, leaves = FlattenPlan.read([x], where="values")
    plan.wrap(leaves)
    return lambda leaves: plan.wrap(leaves)[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MAKERS)
def test_every_property_is_the_same(name: str, mode: str, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    x = MAKERS[name]()
    leaves = FlattenPlan.read([x], where="values")[1]
    in_python, in_cpp = wraps(monkeypatch, None, x), wraps(monkeypatch, built, x)
    with MODES[mode]():
        one, other = in_python(list(leaves)), in_cpp(list(leaves))
    while True:
        assert replay._properties(one) == replay._properties(other)
        assert list(vars(one)) == list(vars(other))
        values = list(zip(vars(one).values(), vars(other).values(), strict=True))
        nested = [(a, b) for a, b in values if hasattr(a, "__tensor_flatten__")]
        assert all(a is b for a, b in values if not hasattr(a, "__tensor_flatten__"))
        if not nested:
            break
        one, other = nested[0]


def test_it_is_made_in_cpp(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other tests here would pass if nothing were: so this one counts."""
    made = []

    class Counting:
        def __init__(self, *args: Any) -> None:
            self.recipe = built.Recipe(*args)

        def __call__(self, *inner: Any) -> Any:
            made.append(args := self.recipe(*inner))
            return args

    module = ModuleType("counting")
    module.Recipe = Counting  # type: ignore[attr-defined]
    x = TwoTensor(ForeignTensor(ones(2), ones(2)), ones(2))
    wrap = wraps(monkeypatch, module, x)
    made.clear()
    wrap(FlattenPlan.read([x], where="values")[1])
    assert [type(each) for each in made] == [ForeignTensor, TwoTensor]


def recipe(built: ModuleType, cls: Any = TwoTensor, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "size": (2,), "stride": (1,), "offset": 0, "dtype": torch.float32, "device": torch.device("cpu"),
        "names": ("a", "b"), "constants": {}, "otherwise": None,
    } | changed  # fmt: skip
    return built.Recipe(cls, *given.values())


def test_where_the_class_would_make_another(built: ModuleType) -> None:
    """A constructor may look at offsets, and whether a gradient is asked for: it is called then."""
    calls: list[Any] = []

    def otherwise(*inner: Any) -> torch.Tensor:
        calls.append(inner)
        return TwoTensor(ones(2), ones(2))

    make = recipe(built, otherwise=otherwise)
    make(ones(2), ones(2))
    assert not calls
    for a, b in [
        (ones(3)[1:], ones(2)), (ones(2), ones(3)[1:]), (ones(2, requires_grad=True), ones(2)), (None, ones(2)),
    ]:  # fmt: skip
        calls.clear()
        make(a, b)
        assert len(calls) == 1 and calls[0][0] is a and calls[0][1] is b


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"cls": int}, "a recipe makes tensors"),
        ({"size": ("a",)}, "int"),
        ({"names": (1,)}, "a name is a str"),
        ({"dtype": "float32"}, "dtype"),
        ({"size": (2, 2)}, "dimensionality|match|sizes"),
    ],
)
def test_what_is_no_recipe(changed: dict[str, Any], said: str, built: ModuleType) -> None:
    with pytest.raises((TypeError, RuntimeError), match=said):
        recipe(built, **changed)


def test_errors(built: ModuleType) -> None:
    with pytest.raises(TypeError, match="a wrapper of 2 inner tensors was to be made of 1"):
        recipe(built)(ones(2))
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        recipe(built)(ones(2), b=ones(2))

    def fail(*inner: Any) -> None:
        raise ZeroDivisionError("in the class")

    with pytest.raises(ZeroDivisionError, match="in the class"):
        recipe(built, otherwise=fail)(ones(3)[1:], ones(2))


def test_a_class_that_cannot_dispatch(built: ModuleType) -> None:
    class Dense(torch.Tensor):
        __torch_dispatch__ = torch._C._disabled_torch_dispatch_impl

    made = None
    with pytest.raises((RuntimeError, TypeError)):
        made = torch.Tensor._make_wrapper_subclass(Dense, (2,))
    assert made is None


def test_nothing_is_kept_alive(built: ModuleType) -> None:
    make, a, b = recipe(built, names=("a", "b", "note"), constants={"note": object()}), ones(2), ones(2)
    made = make(a, b)
    dead = [weakref.ref(made), weakref.ref(a)]
    del made, a
    assert [ref() for ref in dead] == [None, None]

    class Own(torch.Tensor):
        pass

    cycle: list[Any] = []
    cycle.append(recipe(built, cls=Own, names=("a", "b", "note"), constants={"note": cycle}))
    gone = weakref.ref(Own)
    del Own, cycle
    gc.collect()
    assert gone() is None


def test_memory_stays(built: ModuleType) -> None:
    make, a, b = recipe(built), ones(2), ones(2)
    for _ in range(100):
        make(a, b)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(50_000):
        make(a, b)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1000


def test_threads(built: ModuleType) -> None:
    make, wrong = recipe(built), []

    def work() -> None:
        a, b = ones(2), ones(2)
        for _ in range(2000):
            made = make(a, b)
            if made.a is not a or made.b is not b or made.shape != (2,):
                wrong.append(made)

    in_threads(work)
    assert not wrong


def test_attributes_may_be_added(built: ModuleType) -> None:
    made = recipe(built)(ones(2), ones(2))
    made.later = 1
    del made.a
    assert list(vars(made)) == ["b", "later"]
