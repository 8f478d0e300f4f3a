"""Tensors that are passed by keyword: read by their names, whatever their order is, and flattened nowhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile


def program(*args: torch.Tensor, **kwargs: torch.Tensor) -> Any:
    total: Any = 0
    for i, x in enumerate(args):
        total = total + x * (i + 1)
    for name, x in kwargs.items():
        total = total * 2 + x * len(name)
    return total


def tensors(kind: str, count: int = 3) -> list[Any]:
    dense = [torch.arange(3.0) + i for i in range(count)]
    return dense if kind == "dense" else [TwoTensor(x, x + 0.5) for x in dense]


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, TwoTensor):
        return torch.equal(found.a, expected.a) and torch.equal(found.b, expected.b)
    return torch.equal(found, expected)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("kind", ["dense", "wrappers"])
@pytest.mark.parametrize("many", [0, 4])
def test_calls_by_keyword(kind: str, many: int) -> None:
    """The same names are one signature; other names, fewer and more are others, and each is right at each call."""
    x, y, z = tensors(kind)
    more = {f"more_{i}": t for i, t in enumerate(tensors(kind, many))}
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {"x": x, "yy": y}),
        ((x,), {"yy": y}),
        ((), {"x": x, "zzz": y}),
        ((), {"x": x}),
        ((x, y), {}),
        ((x, y), {"zzz": z}),
        ((x,), {"yy": y, "zzz": z}),
    ]
    compiled = aot_compile(program, cache_limit=32)
    for _ in range(3):
        for args, kwargs in calls:
            given = kwargs | more
            assert same(compiled(*args, **given), program(*args, **given))
    assert len(compiled.recompiles) == len(calls) - 1


@pytest.mark.usefixtures("either_way")
def test_the_order_of_keywords_does_not_matter() -> None:
    def weighed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a - 2 * b

    a, b = torch.ones(3), torch.arange(3.0)
    compiled = aot_compile(weighed)
    for kwargs in ({"a": a, "b": b}, {"b": b, "a": a}, {"b": b + 1, "a": a}):
        assert torch.equal(compiled(**kwargs), weighed(**kwargs))
    assert torch.equal(compiled(a, b=b), weighed(a, b=b)) and torch.equal(compiled(a, b), weighed(a, b))
    assert len(compiled.recompiles) == 2


@pytest.mark.usefixtures("either_way")
def test_what_is_no_tensor_at_a_keyword() -> None:
    def scaled(x: torch.Tensor, by: Any = 1) -> torch.Tensor:
        return x * (by[0] if isinstance(by, list | tuple) else 3 if by is None else by)

    x = torch.arange(3.0)
    compiled = aot_compile(scaled, cache_limit=32)
    for by in (x + 1, 2, None, [x], (x, x), x + 2, 2.5, [2]):
        assert torch.equal(compiled(x=x, by=by), scaled(x=x, by=by))
    assert torch.equal(compiled(x=x), scaled(x=x))


def test_a_keyword_is_nothing_that_is_flattened() -> None:
    compiled = aot_compile(program)
    code = compiled.stages(torch.ones(2), yy=torch.ones(2)).code
    assert "kwargs.get('yy')" in code and "treespec !=" not in code


@pytest.mark.usefixtures("either_way")
def test_gradients_and_writes() -> None:
    def written(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        out.add_(1)
        return (x * out).sum()

    compiled = aot_compile(written)
    for _ in range(3):
        found = []
        for function in (written, compiled):
            x, out = torch.arange(3.0, requires_grad=True), torch.zeros(3)
            function(x=x, out=out).backward()
            found.append((x.grad, out))
        torch.testing.assert_close(*found)


def test_the_same_tensor_at_two_keywords() -> None:
    def written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a.mul_(2)
        return a + b

    compiled = aot_compile(written)
    for shared in (False, True, False, True):
        found = []
        for function in (written, compiled):
            a = torch.ones(3)
            found.append(function(a=a, b=a if shared else torch.ones(3)))
        torch.testing.assert_close(*found)
