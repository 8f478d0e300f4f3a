"""Objects that the collector leaves alone: those that modules of programs lead to are found."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base.left_alone import left_alone


@functools.cache
def of_module(n: int) -> torch.Tensor:
    return torch.arange(n) / n


CACHES: dict[str, Any] = {"in a dict": functools.lru_cache(2)(lambda n: torch.arange(n) / n)}


def _table(n: int) -> torch.Tensor:
    return torch.arange(n) / n


class Rotary(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cached = functools.lru_cache(4)(_table)


MODEL = torch.nn.ModuleDict({"layers": torch.nn.ModuleList([Rotary()])})


def _closed_over() -> Any:
    cached = functools.cache(_table)
    return (lambda n: cached(n)), cached


class Model:
    @property
    def other(self) -> int:
        return 1

    @staticmethod
    @functools.cache
    def cached(n: int) -> torch.Tensor:
        return torch.arange(n) / n


@pytest.fixture
def frozen() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_what_modules_lead_to(frozen: None) -> None:
    functions, caches = set(left_alone(FunctionType)), list(left_alone(functools._lru_cache_wrapper))
    assert {test_what_modules_lead_to, Model.other.fget} <= functions  # type: ignore[attr-defined]
    assert {id(of_module), id(CACHES["in a dict"]), id(Model.cached)} <= set(map(id, caches))


def test_nothing_is_searched_where_the_collector_has_all() -> None:
    gc.unfreeze()
    assert list(left_alone(FunctionType)) == []


@pytest.mark.every_case
@pytest.mark.parametrize("where", ["module", "dict", "class", "model", "variable", "closure"])
@pytest.mark.parametrize("door", ["a trace", "symbols", "one that fails", "a run without data"])
def test_caches_are_as_eager_mode_leaves_them(door: str, where: str) -> None:
    """As in a server that forks, where a model has a cache of rotations by sizes."""
    variable, (function, closed_over) = Rotary(), _closed_over()
    cache: Any = {
        "module": of_module, "dict": CACHES["in a dict"], "class": Model.cached, "variable": variable.cached,
        "model": MODEL["layers"][0].cached, "closure": closed_over,  # type: ignore[index]
    }[where]  # fmt: skip
    cache.cache_clear()
    gc.collect()
    gc.freeze()
    try:
        _as_eager_mode_leaves_it(door, cache, function if where == "closure" else cache)
    finally:
        gc.unfreeze()


def _as_eager_mode_leaves_it(door: str, cache: Any, called: Any) -> None:

    def program(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x * called(x.shape[0])
        if door == "one that fails":
            raise ValueError("the program's own")
        return y

    if door == "a run without data":
        sa.profile(program, torch.ones(4))
    elif door != "one that fails":
        compiled: Any = sa.aot_compile(program, dynamic=True if door == "symbols" else None)
        assert torch.equal(compiled(torch.ones(4)), torch.arange(4) / 4)
    else:
        with pytest.raises(ValueError, match="the program's own"):
            sa.aot_compile(program)(torch.ones(4))
    assert type(cache(4)) is torch.Tensor and torch.equal(cache(4), torch.arange(4) / 4)


def test_what_is_frozen_later_is_found_in_the_same_function(frozen: None) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x * cached(x.shape[0])
        return y

    for _ in range(2):
        cached: Any = functools.cache(_table)
        gc.freeze()
        sa.aot_compile(program)(torch.ones(4))
        assert type(cached(4)) is torch.Tensor


def test_a_search_keeps_no_variables(frozen: None) -> None:
    """As a snapshot of a frame would, which Python keeps until the next one."""
    kept = Rotary()
    gc.freeze()
    seen = weakref.ref(kept)
    assert kept.cached in list(left_alone(functools._lru_cache_wrapper))
    del kept
    assert seen() is None
