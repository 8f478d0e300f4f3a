"""What a careful author writes where nothing needs to be general: the floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

make: Any = torch.Tensor._make_wrapper_subclass
SIZE, STRIDE = (4, 4), (4, 1)
"""Of every leaf in the benchmarks of leaves."""

Flat = Callable[[Any], Any]


def unwrap(count: int, depth: int, check: type | None = None) -> Flat:
    """Straight-line reads of the leaves of `count` trees of two-tensors.

    Args:
        count: How many.
        depth: How many wrappers lie above a leaf.
        check: The class that each wrapper must be of; nothing is checked without it.

    >>> print(_unwrap_text(1, 2, False))
    def unwrap(values):
        t0, = values
        t0a = t0.a
        t0b = t0.b
        return [t0a.a, t0a.b, t0b.a, t0b.b]
    """
    return _function(_unwrap_text(count, depth, check is not None), "unwrap", {"TwoTensor": check})


def wrap(cls: type, count: int, depth: int, *, by_constructor: bool) -> Flat:
    """Straight-line code that makes `count` trees of two-tensors out of their leaves, without a check.

    Args:
        cls: A class of two tensors `a` and `b`.
        count: How many.
        depth: How many wrappers lie above a leaf.
        by_constructor: Whether the class's constructor is called; else what it would do is written out.
    """
    constants = {"TwoTensor": cls, "make": make, "SIZE": SIZE, "STRIDE": STRIDE, "float32": torch.float32}
    constants["assign"] = object.__setattr__
    checks = cls.__setattr__ is not object.__setattr__  # an assignment by name would run them
    return _function(_wrap_text(count, depth, by_constructor, checks), "wrap", constants)


def _function(text: str, name: str, constants: dict[str, Any]) -> Flat:
    namespace = dict(constants)
    exec(text, namespace)
    function: Flat = namespace[name]
    return function


def _unwrap_text(count: int, depth: int, check: bool) -> str:
    trees = [f"t{i}" for i in range(count)]
    lines = ["def unwrap(values):", f"    {', '.join(trees)}, = values"]
    for above, path in ((d, path) for tree in trees for d in range(depth) for path in _paths(tree, d)):
        if above:
            lines.append(f"    {path} = {path[:-1]}.{path[-1]}")
        if check:
            lines.append(f"    if {path}.__class__ is not TwoTensor: raise TypeError('{path}')")
    leaves = [f"{path[:-1]}.{path[-1]}" for tree in trees for path in _paths(tree, depth)]
    return "\n".join([*lines, f"    return [{', '.join(leaves)}]"])


def _wrap_text(count: int, depth: int, by_constructor: bool, checks: bool) -> str:
    trees = [f"t{i}" for i in range(count)]
    leaves = [path for tree in trees for path in _paths(tree, depth)]
    lines = ["def wrap(leaves):", f"    {', '.join(leaves)}, = leaves"]
    for tree in trees:
        for path in (path for d in reversed(range(depth)) for path in _paths(tree, d)):
            if by_constructor:
                lines.append(f"    {path} = TwoTensor({path}a, {path}b, SIZE, STRIDE)")
            else:
                lines.append(f"    {path} = make(TwoTensor, SIZE, None, None, None, float32)")
                put = "    assign({0}, '{1}', {0}{1})" if checks else "    {0}.{1} = {0}{1}"
                lines += [put.format(path, side) for side in "ab"]
    return "\n".join([*lines, f"    return ({', '.join(trees)},)"])


def _paths(tree: str, depth: int) -> Iterator[str]:
    """The names of what lies `depth` steps below a tree, from left to right."""
    if depth == 0:
        yield tree
    else:
        for side in "ab":
            yield from _paths(tree + side, depth - 1)


class HandTwoTensor(torch.Tensor):
    """Two tensors with a rule written by hand for each of three operators, and nothing else."""

    a: torch.Tensor
    b: torch.Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> HandTwoTensor:
        pair: HandTwoTensor = make(cls, a.shape, a.stride(), a.storage_offset(), None, a.dtype, a.layout, a.device)
        pair.a = a
        pair.b = b
        return pair

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        rule = _RULES.get(func)
        return NotImplemented if rule is None else rule(*args, **(kwargs or {}))


def _add(x: Any, y: Any) -> HandTwoTensor:
    if type(y) is HandTwoTensor:
        return HandTwoTensor(x.a + y.a, x.b + y.b)
    return HandTwoTensor(x.a + y, x.b + y)


def _mul(x: Any, y: Any) -> HandTwoTensor:
    if type(y) is HandTwoTensor:
        return HandTwoTensor(x.a * y.a, x.b * y.b)
    return HandTwoTensor(x.a * y, x.b * y)


def _detach(x: Any) -> HandTwoTensor:
    return HandTwoTensor(x.a.detach(), x.b.detach())


_RULES: dict[Any, Callable[..., HandTwoTensor]] = {
    torch.ops.aten.add.Tensor: _add,
    torch.ops.aten.mul.Tensor: _mul,
    torch.ops.aten.detach.default: _detach,
}
