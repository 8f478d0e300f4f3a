"""Objects that the collector leaves alone: those that modules of programs lead to are found."""

from __future__ import annotations

import functools
import gc
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
@pytest.mark.parametrize("cache", [of_module, CACHES["in a dict"], Model.cached], ids=["module", "dict", "class"])
@pytest.mark.parametrize("door", ["a trace", "one that fails", "a run without data"])
def test_caches_are_as_eager_mode_leaves_them(frozen: None, door: str, cache: Any) -> None:
    """As in a server that forks, where a model has a cache of rotations by sizes."""
    cache.cache_clear()

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * cache(x.shape[0])
        if door == "one that fails":
            raise ValueError("the program's own")
        return y

    if door == "a run without data":
        sa.profile(program, torch.ones(4))
    elif door == "a trace":
        assert torch.equal(sa.aot_compile(program)(torch.ones(4)), torch.arange(4) / 4)
    else:
        with pytest.raises(ValueError, match="the program's own"):
            sa.aot_compile(program)(torch.ones(4))
    assert type(cache(4)) is torch.Tensor and torch.equal(cache(4), torch.arange(4) / 4)
