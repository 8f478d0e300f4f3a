"""Default arguments: what a function holds there is an argument of each call, as what its closure holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import subclass_aot as sa


def counted(x: Tensor, cache: dict[str, int] = {}) -> Tensor:  # noqa: B006
    """Changes what stands behind a default argument."""
    cache["calls"] = cache.get("calls", 0) + 1
    return x * cache["calls"]


def remembered(x: Tensor, *, before: list[Tensor] = []) -> Tensor:  # noqa: B006
    """Keeps tensors behind one that is given by name."""
    before.append(x * 2)
    return torch.stack(before).sum(0)


def times(w: Any) -> Callable[..., Any]:
    return lambda x, w=w: (x * w).sin()


@pytest.mark.parametrize("function", [counted, remembered])
def test_state_behind_a_default_argument(function: Any) -> None:
    x, found = torch.ones(2), {}
    for run in (function, sa.aot_compile(function)):
        for state in [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]:
            state.clear()
        found[run is function] = [run(x * i).tolist() for i in range(1, 5)]
        left = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        assert len(left[0]) == (1 if function is counted else 4)
    assert found[True] == found[False]


@pytest.mark.parametrize("kind", [lambda: torch.rand(3), lambda: sa.TwoTensor(torch.rand(3), torch.rand(3))])
def test_gradients_of_a_default_argument(kind: Any) -> None:
    w, x = kind().requires_grad_(), torch.rand(3)
    function = times(w)
    expected = torch.autograd.grad(function(x).sum(), w)[0]
    (got,) = torch.autograd.grad(sa.aot_compile(function)(x).sum(), w)
    assert type(got) is type(w) and torch.equal(torch.as_tensor(got == expected).all(), torch.tensor(True))


def test_a_write_before_backward_is_an_error_as_in_eager_mode() -> None:
    w, x = torch.rand(3), torch.rand(3, requires_grad=True)
    for function in (times(w), sa.aot_compile(times(w))):
        result = function(x).sum()
        w.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.backward()


def test_another_default_argument_compiles_anew() -> None:
    def scaled(x: Tensor, by: float = 2.0, *, function: Any = torch.sin) -> Any:
        return function(x) * by

    compiled, x = sa.aot_compile(scaled), torch.ones(2)
    assert compiled(x).equal(scaled(x)) and compiled(x).equal(scaled(x)) and not compiled.recompiles
    scaled.__defaults__ = (3.0,)
    assert compiled(x).equal(scaled(x))
    scaled.__kwdefaults__["function"] = torch.cos
    assert compiled(x).equal(scaled(x))
    assert [str(why).split(":")[0] for why in compiled.recompiles] == [
        "fn.__defaults__[0]", "fn.__kwdefaults__['function']",
    ]  # fmt: skip


def test_functions_that_a_loop_makes() -> None:
    functions = [lambda x, w=w: x * w for w in torch.arange(3.0)]
    assert [sa.aot_compile(f)(torch.ones(2))[0].item() for f in functions] == [0, 1, 2]


def test_of_a_function_that_is_called_inside() -> None:
    inner = times(sa.TwoTensor(torch.ones(2), torch.zeros(2)))
    result = sa.aot_compile(lambda x: inner(x))(torch.ones(2))
    assert type(result) is sa.TwoTensor and result.b.tolist() == [0, 0]


def test_a_file(tmp_path: Path) -> None:
    function = times(torch.rand(3))
    compiled, x = sa.aot_compile(function), torch.rand(3)
    expected = compiled(x)
    compiled.save(tmp_path / "f.sa")
    loaded = sa.load_compiled(tmp_path / "f.sa", function, trust=True)
    assert loaded(x).equal(expected) and "loaded from" in loaded.explain()
