"""Which of what was compiled a call tries, and in which order."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any, cast

import pytest
import torch
from torch.overrides import TorchFunctionMode

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.specializations import Specialization, Specializations


class Made:
    """Stands for what was compiled."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def named(*names: str) -> list[Specialization]:
    return [cast("Specialization", Made(name)) for name in names]


def test_the_one_used_last_is_first() -> None:
    a, b, c = named("a", "b", "c")
    kept = Specializations(3)
    for each in (a, b, c, a):
        kept.use(each)
    assert [*kept] == [a, c, b] and kept.latest is a and len(kept) == 3


def test_the_one_used_longest_ago_goes() -> None:
    a, b, c = named("a", "b", "c")
    kept = Specializations(2)
    for each in (a, b, a, c):
        kept.use(each, key=repr(each))
    assert [*kept] == [c, a]
    assert [*kept.others("b")] == [a], "a key of one that is gone leads nowhere"


def test_what_had_the_same_key_is_tried_first() -> None:
    made = named(*"abcdef")
    kept = Specializations(9)
    for each in made:
        kept.use(each)
    kept.use(made[1], key="like b")
    kept.use(made[4])
    assert [*kept.others("like b")] == [made[i] for i in (1, 5, 3, 2, 0)]
    assert [*kept.others("like e")][0] is made[1], "the one before"


def test_keys_are_made_where_it_pays() -> None:
    kept = Specializations(9)
    assert kept.lookup_key([torch.ones(2)], ()) is None
    for each in named(*"abcdef"):
        kept.use(each)
    x = TwoTensor(torch.ones(2), torch.ones(2))
    keys = [
        kept.lookup_key([value], modes)
        for value in (torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.float64), x, 1, 1.0, True, "a", None, [])
        for modes in ((True,), (False,))
    ]
    assert len(set(keys)) == len(keys)
    assert kept.lookup_key([torch.zeros(2)], (True,)) == keys[0]


class Loud(torch.Tensor):
    """It is told of each attribute that is read."""

    told: list[object] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        cls.told.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it was compared")


def test_no_code_of_the_user_s_runs() -> None:
    kept = Specializations(9)
    for each in named(*"abcdef"):
        kept.use(each)
    Loud.told.clear()
    hash(kept.lookup_key([torch.ones(2).as_subclass(Loud), Unhashable(), {}], ()))
    assert Loud.told == []


class Mode(TorchFunctionMode):
    """A mode that can be compared, and not be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_modes_of_the_user_s_are_not_hashed_nor_kept() -> None:
    compiled = aot_compile(lambda x: x * 2, dynamic=False, cache_limit=6)
    for size in range(1, 7):
        compiled(torch.ones(size))
    with Mode() as mode:
        assert compiled(torch.ones(3)).tolist() == [2, 2, 2]
        compiled(torch.ones(2))
    seen = weakref.ref(mode)
    del mode
    for size in range(1, 8):
        compiled(torch.ones(size))
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("dynamic", [False, True, None])
def test_many_signatures_in_turns(dynamic: bool | None) -> None:
    calls = 0

    def backend(graph: Any, inputs: Any) -> Any:
        nonlocal calls
        calls += 1
        return graph.forward

    compiled = aot_compile(lambda x, n: x * n, fw_compiler=backend, dynamic=dynamic)
    cases = [(torch.rand(size), n) for size in range(2, 6) for n in range(4)]
    cases += [(TwoTensor(x, x), 2) for x in (torch.rand(2), torch.rand(3))]
    for _ in range(3):
        for x, n in cases:
            result = compiled(x, n)
            torch.testing.assert_close(result, x * n)
    assert calls == 1 + len(compiled.recompiles)


def test_threads() -> None:
    compiled = aot_compile(lambda x: x + 1, dynamic=False, cache_limit=8)
    xs = [torch.full((size,), float(size)) for size in range(1, 13)]
    wrong: list[object] = []

    def use(start: int) -> None:
        for i in range(120):
            x = xs[(start + i) % len(xs)]
            if not torch.equal(compiled(x), x + 1):
                wrong.append(x)

    threads = [threading.Thread(target=use, args=(5 * i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(compiled._specializations) == 8


def test_what_is_dropped_is_let_go() -> None:
    compiled = aot_compile(lambda x: x + 1, dynamic=False, cache_limit=6)
    compiled(torch.ones(1))
    seen = weakref.ref(compiled._specializations.latest.entry.call)  # type: ignore[union-attr]
    for size in range(2, 9):
        compiled(torch.ones(size))
        compiled(torch.ones(size - 1))
    gc.collect()
    assert seen() is None


def test_a_value_that_changes_for_ever_is_told_of_once() -> None:
    compiled = aot_compile(lambda x, name: x * 2 if name else x, cache_limit=10)
    for i in range(10):
        compiled(torch.ones(1), str(i))
    with pytest.warns(UserWarning, match="compiled for 11 calls that differ in one value") as told:
        compiled(torch.ones(1), "another")
    assert "args[1]: str '9' before, str 'another' now" in str(told[0].message)
    compiled(torch.ones(1), "one more")


def test_of_shapes_and_of_several_values_nothing_is_said() -> None:
    compiled = aot_compile(lambda x, name, other: x * 2 if name or other else x, cache_limit=4)
    for i in range(12):
        compiled(torch.ones([1] * i), "", "")
    for i in range(12):
        compiled(torch.ones(1), str(i), str(i))
