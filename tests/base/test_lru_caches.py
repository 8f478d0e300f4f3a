"""Caches of `functools` that a traced function fills."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import subclass_aot as sa
from subclass_aot import aot_compile
from subclass_aot.base import lru_caches
from subclass_aot.base.lru_caches import forget_in_caches

WHOLE_HEAP = True
"""The library finds caches of this module among all objects."""


@functools.cache
def unbounded(n: int) -> torch.Tensor:
    return torch.arange(n) / n


@functools.lru_cache(maxsize=4)
def bounded(n: int) -> torch.Tensor:
    return torch.arange(n) / n


@functools.cache
def several(n: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    return {"rotary": (torch.arange(n).cos(), torch.arange(n).sin())}


@functools.cache
def nested(n: int) -> torch.Tensor:
    return unbounded(n) * 2


@functools.cache
def by_tensor(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


class Model(nn.Module):
    @functools.lru_cache(maxsize=8)  # noqa: B019
    def table(self, n: int) -> torch.Tensor:
        return torch.arange(n) / n

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table(x.shape[0])


MODEL = Model()
CACHES = (unbounded, bounded, several, nested, by_tensor, Model.table)
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "unbounded": lambda x: x * unbounded(x.shape[0]),
    "bounded": lambda x: x * bounded(x.shape[0]),
    "several": lambda x: x * several(x.shape[0])["rotary"][0] + several(x.shape[0])["rotary"][1],
    "nested": lambda x: x * nested(x.shape[0]),
    "by tensor": lambda x: x * by_tensor(x),
    "a method": MODEL,
    "returned": lambda x: (x * 2, unbounded(x.shape[0])),
    "reads a value": lambda x: x * unbounded(x.shape[0]) if x.sum() > 0 else x - unbounded(x.shape[0]),
}


@pytest.fixture(autouse=True)
def empty_caches() -> None:
    for cache in CACHES:
        cache.cache_clear()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_cache_computes_anew_what_a_trace_has_put_there(name: str, dynamic: bool | None) -> None:
    program = PROGRAMS[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for n in (4, 4, 5, 4, 6):
        x = torch.rand(n, requires_grad=True)
        results = []
        for function in (compiled, program):
            result = function(x)
            first = result[0] if isinstance(result, tuple) else result
            results.append((result, torch.autograd.grad(first.sum(), x)))
        torch.testing.assert_close(*results)


def test_what_eager_mode_has_cached_stays() -> None:
    before = bounded(4)
    compiled = aot_compile(lambda x: x * bounded(4))
    assert torch.equal(compiled(torch.ones(4)), before) and bounded(4) is before


def test_after_a_trace_that_fails() -> None:
    def program(x: torch.Tensor, fails: bool) -> torch.Tensor:
        y = x * unbounded(4)
        if fails:
            raise ValueError("the program's own")
        return y

    compiled = aot_compile(program)
    with pytest.raises(ValueError, match="the program's own"):
        compiled(torch.ones(4), True)
    assert torch.equal(program(torch.ones(4), False), torch.arange(4) / 4)
    assert torch.equal(compiled(torch.ones(4), False), torch.arange(4) / 4)


def test_other_holders_are_left_alone() -> None:
    tensor = torch.ones(2)
    assert not forget_in_caches([tensor]) and not forget_in_caches([])
    held = by_tensor(tensor)
    assert forget_in_caches([held]) and by_tensor.cache_info().currsize == 0


@pytest.mark.every_case
@pytest.mark.parametrize("size", [3, 60_000])
def test_a_large_cache(size: int) -> None:
    """What is in it is not looked through: holders are found from the tensors."""
    cache: Any = functools.cache(lambda n: [[i] for i in range(n)])
    holding: Any = functools.cache(lambda n: (list(range(size)), torch.ones(n)))
    cache(size)
    tensor = holding(2)[1]
    assert forget_in_caches([tensor]) and holding.cache_info().currsize == 0
    assert cache.cache_info().currsize == 1


def test_all_caches_are_found() -> None:
    """Among them those that a class and a function have just made."""
    made = [functools.cache(lambda: 1), functools.lru_cache(3)(lambda: 2)]
    found = set(map(id, lru_caches._all_caches()))
    assert {*map(id, CACHES), *map(id, made)} <= found


@functools.cache
def wrapped(n: int) -> TwoTensor:
    return TwoTensor(torch.arange(n) / n, torch.arange(n) * 1.0)


WITHOUT_DATA: dict[str, Callable[[torch.Tensor], Any]] = {
    **{name: PROGRAMS[name] for name in ("unbounded", "bounded", "several", "nested", "a method", "returned")},
    "a wrapper": lambda x: x * wrapped(x.shape[0]),
}


@pytest.mark.parametrize("name", WITHOUT_DATA)
@pytest.mark.parametrize("door", ["profile", "profile of a block", "meta", "a module"])
def test_a_run_without_data_leaves_nothing(name: str, door: str) -> None:
    program = WITHOUT_DATA[name]
    wrapped.cache_clear()
    expected = program(torch.ones(4))
    wrapped.cache_clear()
    for cache in CACHES:
        cache.cache_clear()
    if door == "profile":
        sa.profile(program, torch.ones(4))
        with pytest.raises(ValueError, match="the program's own"):
            sa.profile(_fails(program), torch.ones(4))
    elif door == "profile of a block":
        model = _Calls(program)
        with sa.profile(model):
            model(sa.MetaTensor(torch.ones(4)))
    elif door == "meta":
        with sa.meta("cuda:1"):
            program(torch.ones(4))
        with sa.meta("cuda:0"):
            made = program(torch.ones(4))
        assert (made[0] if isinstance(made, tuple) else made).device == torch.device("cuda:0")
    else:
        sa.to_meta(_Calls(program))(torch.ones(4))
    torch.testing.assert_close(program(torch.ones(4)), expected)


def test_real_tensors_stay_cached_in_a_run_without_data() -> None:
    before, other = bounded(4), unbounded(4)
    with sa.meta():
        assert isinstance(bounded(4) * torch.ones(4), sa.MetaTensor) and isinstance(unbounded(5), sa.MetaTensor)
    assert bounded(4) is before
    assert type(unbounded(5)) is torch.Tensor and torch.equal(unbounded(4), other)


def test_a_cache_of_a_module_that_is_imported_in_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import functools, torch\n@functools.cache\ndef table(n): return torch.arange(n)\n"
    (tmp_path / "imported_without_data.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with sa.meta():
        module = importlib.import_module("imported_without_data")
        assert isinstance(module.table(3), sa.MetaTensor)
    assert type(module.table(3)) is torch.Tensor


def _fails(program: Callable[..., Any]) -> Callable[..., Any]:
    def failing(x: torch.Tensor) -> None:
        program(x)
        raise ValueError("the program's own")

    return failing


class _Calls(nn.Module):
    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.program = program

    def forward(self, x: torch.Tensor) -> Any:
        return self.program(x)
