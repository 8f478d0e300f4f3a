"""What wrappers in wrappers cost: the number of calls grows with their depth, and does not double at each level."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.base import _torch

Program = Callable[[Any, Path], Any]

DEPTHS = [10, pytest.param(20, marks=pytest.mark.long)]
"""Each is compared with twice as much."""
MOST = 3.0
"""How often a program may be called for twice the depth: a path of names is as long as the tree is deep."""
LIMIT = 1_000_000
"""What doubles at each level would not end; it stops here."""


class Scaled(sa.WrapperTensor):
    """Stands for a product, and is written by way of it."""

    value: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> sa.Outer:
        return sa.Outer.like(self.value)

    def to_plain(self) -> Any:
        return self.value * self.scale

    def from_plain(self, plain: Any) -> Any:
        inner = plain / self.scale
        value: Any = self.value
        return Scaled(value.from_plain(inner) if isinstance(value, Scaled) else inner, self.scale.clone())


class Holder(nn.Module):
    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Any) -> Any:
        return self.weight * x


CLASSES: dict[str, Any] = {
    "declared": sa.TwoTensor,
    "foreign": _torch.wrappers.foreign_two_tensor(),
    "with to_plain": Scaled,
}


def nested(cls: Any, depth: int, size: int = 2) -> Any:
    made = torch.ones(size)
    for _ in range(depth):
        made = cls(made, torch.ones(size))
    return made


def double(x: Any) -> Any:
    return x * 2


def like(x: Any, size: int) -> Any:
    depth, part = 0, x
    while _torch.wrappers.is_traceable_wrapper_subclass(part):
        depth, part = depth + 1, getattr(part, part.__tensor_flatten__()[0][0])
    return nested(type(x), depth, size)


def compiled(x: Any, **options: Any) -> Any:
    function = sa.aot_compile(double, **options)
    function(x)
    return function


def three_sizes(x: Any, folder: Path) -> Any:
    function = compiled(x)
    function(like(x, 5)), function(like(x, 7)), function(x)
    return function.recompiles


def gradient(x: Any, folder: Path) -> Any:
    loss = sa.aot_compile(lambda x: (x * 2 + 1).sum())(x.detach().requires_grad_())
    loss.backward(torch.ones_like(loss))


def saved(x: Any, folder: Path) -> Any:
    compiled(x).save(folder / "file")
    return sa.load_compiled(folder / "file", double, trust=True)(x)


def blocks(x: Any, folder: Path) -> Any:
    model = nn.Sequential(Holder(x), Holder(x))
    sa.compile_blocks(model, [Holder])
    return model[0](torch.ones(2))


PROGRAMS: dict[str, Program] = {
    "in eager mode": lambda x, folder: double(x),
    "writes in eager mode": lambda x, folder: x.mul_(2),
    "a part in eager mode": lambda x, folder: x[:1].mul_(2),
    "text": lambda x, folder: repr(x),
    "a copy": lambda x, folder: copy.copy(x),
    "pickle": lambda x, folder: pickle.loads(pickle.dumps(x)),
    "without data": lambda x, folder: double(sa.MetaTensor.like(x)),
    "the first call": lambda x, folder: compiled(x),
    "the first call with symbols": lambda x, folder: compiled(x, dynamic=True),
    "a later call": lambda x, folder: compiled(x)(x),
    "another size": lambda x, folder: (
        (f := compiled(x, dynamic=False))(like(x, 5)), f.recompiles, f.explain(), f.source,
    ),
    "three sizes": three_sizes,
    "writes": lambda x, folder: sa.aot_compile(lambda x: x.mul_(2))(x),
    "views": lambda x, folder: sa.aot_compile(lambda x: (x.view(-1), (x * 2).view(-1)))(x),
    "gradients": gradient,
    "a joint graph": lambda x, folder: sa.trace_joint(double, x),
    "a module": lambda x, folder: sa.aot_compile(Holder(x))(torch.ones(2)).sum(),
    "blocks": blocks,
    "a file": saved,
}  # fmt: skip


class TooMany(BaseException):
    """More calls than anything that ends."""


def calls_of(program: Callable[[], object], limit: int = LIMIT) -> int:
    """Counts calls of functions, those of C included."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")
        if count > limit:
            raise TooMany

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        program()
    except TooMany:
        return limit * 100
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_grow_with_the_depth(name: str, cls: str, depth: int, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    program(nested(CLASSES[cls], 3), tmp_path)  # what is done once for a class
    shallow, deep = (
        calls_of(lambda levels=levels: program(nested(CLASSES[cls], levels), tmp_path))  # type: ignore[misc]
        for levels in (depth, 2 * depth)
    )
    assert deep < MOST * shallow, (shallow, deep)


@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.long)])
def test_torch_compile_calls_no_more_than_with_its_own_backend(dynamic: bool | None, fresh_dynamo: None) -> None:
    """What Dynamo does for itself is in both; it writes each guard in words, as long as the tree is deep."""

    def calls(backend: str) -> int:
        for depth in (3, 14):
            torch.compiler.reset()
            x, run = nested(sa.TwoTensor, depth), torch.compile(double, backend=backend, dynamic=dynamic)
            count = calls_of(lambda run=run, x=x: run(x), limit=100 * LIMIT)  # type: ignore[misc]
        return count

    assert calls("subclass_aot") < calls("aot_eager")
