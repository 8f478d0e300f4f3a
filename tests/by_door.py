"""What programs do by both doors, beside eager mode.

A program here is a function of a door, `lambda f: f` in eager mode: it puts its function through the door, calls what
comes out, and gives all that is to be compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot import aot_compile

Door = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Door], Any]

DOORS: dict[str, Door] = {
    "aot_compile": aot_compile,
    "torch.compile": lambda fn: torch.compile(fn, backend="subclass_aot"),
}


def check(program: Program, door: str | Door = "aot_compile") -> list[str]:
    """Checks that a program does what it does in eager mode.

    Args:
        program: The program.
        door: By which door.

    Returns:
        The warnings of this library.
    """
    torch._dynamo.reset()
    expected, found = seen_by(program, lambda fn: fn)
    assert not found
    got, found = seen_by(program, DOORS[door] if isinstance(door, str) else door)
    assert got == expected
    return found


def seen_by(program: Program, door: Door) -> tuple[Any, list[str]]:
    """Runs a program; returns what it gives, as plain values, and the warnings of this library.

    Args:
        program: The program.
        door: Where its function goes through.
    """
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        given = plain(program(door))
    return given, [str(warning.message) for warning in found if "function itself r" in str(warning.message)]


def plain(value: Any) -> Any:
    """Returns what is seen of a value, as plain values.

    Args:
        value: Tensors, modules, and lists, tuples and dicts of them.
    """
    if isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__"):
        inner = [plain(getattr(value, name)) for name in value.__tensor_flatten__()[0]]
        return type(value), value.requires_grad, value.is_leaf, tuple(value.shape), inner
    if isinstance(value, torch.Tensor):
        return type(value), value.requires_grad, value.is_leaf, value.dtype, value.stride(), value.tolist()
    if isinstance(value, torch.nn.Module):
        tensors = value.state_dict(keep_vars=True)
        return type(value), [(name, plain(x), plain(x.grad)) for name, x in tensors.items()]
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return {key: plain(part) for key, part in value.items()} if isinstance(value, dict) else value
