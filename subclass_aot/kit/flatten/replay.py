"""Constructors of other people's classes, watched once and then replayed.

Note [Replay of constructors]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A wrapper of a class that is not declared is rebuilt by its `__tensor_unflatten__`, at each call: 5 to 12 us, nearly all
of which is Python that computes the same as the time before. So the first real call is watched. If nothing happened
but that an outer tensor was made and attributes were set, later calls make the outer tensor and set the attributes.

What is checked, and each is a reason to let the class's own code run, as ever:

- a dispatch mode sees every operator: none may run, so no value is read and no inner tensor is a view or a copy;
- a profiling function sees every function: those in C must be known to change nothing, and the bytecode of those in
  Python must store nothing but locals and attributes that the new tensor has afterwards, and read no global data but
  constants, which are written in capitals;
- the inner tensors stand in the attributes that are called as they are, and each other attribute comes out of the
  context (a dtype or None may be anything's): so it does not depend on the tensors of this call;
- run once more, it makes the same again, and so does the replay, in every property of the tensor.

Not replayed are classes with slots, or with a `__setattr__` or `__del__` of their own; symbolic sizes; and calls whose
inner tensors do not begin where they began in the call that was watched. A class that is wronged all the same says
`__wrapper_replay__ = False`. `SUBCLASS_AOT_REPLAY=0` in the environment replays nothing; with `check`, each replay is
compared with what the class itself makes.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base.codegen import Source
from subclass_aot.base.tricks import is_on
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten.watch import watched

MODE = os.environ.get("SUBCLASS_AOT_REPLAY", "1")

Rebuild = Callable[..., torch.Tensor]
"""Makes a wrapper of its inner tensors, in order."""

_UNLIKE = """{cls}: what `__tensor_unflatten__` makes is not what was seen the first time: {why}.
  Instead: write `__wrapper_replay__ = False` into the class, and its own code runs each time."""


class Replayed:
    """Makes wrappers of one class, context, size and strides: by the class's own code, then by replay of it.

    See Note [Replay of constructors].

    Args:
        cls: The class.
        names: Its inner tensors.
        context: As `__tensor_flatten__` gave it.
        size: Outside.
        stride: Outside.

    Attributes:
        why_not: Why it is not replayed; None before the first call, and where it is.
    """

    def __init__(
        self,
        cls: type[torch.Tensor],
        names: Sequence[str],
        context: object,
        size: tuple[int, ...],
        stride: tuple[int, ...],
    ) -> None:
        self._cls, self._names, self._context = cls, tuple(names), context
        self._size, self._stride = torch.Size(size), stride  # a class may keep it, and compare it with others
        self._by_itself: Rebuild = functools.partial(_unflatten, cls, self._names, context, self._size, self._stride)
        self.why_not = _unlike_others(cls)
        if not self.may_be:
            self.make = self._by_itself  # type: ignore[method-assign]

    @property
    def may_be(self) -> bool:
        """Whether it is, or may be after the first call."""
        return self.why_not is None and MODE != "0" and is_on("sys.setprofile")

    def make(self, *inner: Any) -> torch.Tensor:
        """Makes a wrapper of its inner tensors, in the order of `names`, and finds out how to make the next ones.

        What makes those takes its place. It does not refer to this object, which would then wait for the collector.
        """
        profiled = sys.getprofile() is not None  # there is one place for a profiler, and one in C cannot be put back
        if profiled or _torch.dispatch.dispatch_modes() or not all(map(_is_real, inner)):
            return self._by_itself(*inner)
        cls, context, size, stride = self._cls, self._context, self._size, self._stride
        held = dict(zip(self._names, inner, strict=True))
        made, self.why_not = watched(lambda: cls.__tensor_unflatten__(held, context, size, stride))  # type: ignore[attr-defined]
        if self.why_not is None:
            self.why_not = self._learn(made, inner)
        if self.why_not is not None:
            self.make = self._by_itself  # type: ignore[method-assign]
        return made

    def _learn(self, made: torch.Tensor, inner: tuple[Any, ...]) -> str | None:
        """Takes over the replay of what made a wrapper, or says why that is not the same."""
        held = dict(zip(self._names, inner, strict=True))
        others = {name: value for name, value in vars(made).items() if name not in held}
        for name, tensor in held.items():
            if vars(made).get(name) is not tensor:
                return f"{name} is not the inner tensor itself"
        for name, value in others.items():
            if not (value is None or isinstance(value, torch.dtype) or _is_in(value, self._context)):
                return f"attribute {name} does not come from the context"
        if made.storage_offset() or any(tensor.storage_offset() or tensor.requires_grad for tensor in inner):
            return None  # the next call may be one to learn from
        replay = _write(made, self._names, others, self._by_itself)
        why = _difference(made, self._by_itself(*inner)) or _difference(made, replay(*inner))
        if why:
            return f"it is not the same another time: {why}"
        self.make = _compared(replay, self._by_itself) if MODE == "check" else replay  # type: ignore[method-assign]
        return None


def _unflatten(
    cls: Any, names: Sequence[str], context: object, size: tuple[int, ...], stride: tuple[int, ...], *inner: Any
) -> torch.Tensor:
    made: torch.Tensor = cls.__tensor_unflatten__(dict(zip(names, inner, strict=True)), context, size, stride)
    return made


def _is_real(tensor: Any) -> bool:
    """Returns whether a tensor has data, or each inner tensor of a wrapper."""
    if _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        return all(_is_real(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _unlike_others(cls: type[torch.Tensor]) -> str | None:
    """Returns why the attributes of a class cannot be set one by one; None if they can."""
    if getattr(cls, "__wrapper_replay__", True) is False:
        return "the class says __wrapper_replay__ = False"
    if _torch.wrappers.mirrors_requires_grad(cls):
        return "it sets requires_grad on its inner tensors"
    for base in cls.__mro__[: cls.__mro__.index(torch.Tensor)]:
        for name in ("__setattr__", "__del__"):
            if name in vars(base):
                return f"{base.__name__} has {name}"
        if vars(base).get("__slots__"):
            return f"{base.__name__} has __slots__"
    return None


def _is_in(value: object, context: object) -> bool:
    """Returns whether a value is a part of a context: the very object, or an equal one that cannot change."""
    if value is context or (type(value) is type(context) and _cannot_change(value) and value == context):
        return True
    if isinstance(context, dict):
        return any(_is_in(value, part) for part in context.values())
    if isinstance(context, tuple | list):
        return any(_is_in(value, part) for part in context)
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        return any(_is_in(value, getattr(context, part.name)) for part in dataclasses.fields(context))
    return False


def _cannot_change(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_cannot_change, value))
    kinds = (int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum)
    return isinstance(value, (*kinds, type, types.FunctionType))


def _write(made: torch.Tensor, names: Sequence[str], others: dict[str, object], by_itself: Rebuild) -> Rebuild:
    """Returns what makes such a wrapper without its constructor."""
    if hooks.make_recipe is not None and made.layout is torch.strided:
        metadata = (tuple(made.size()), made.stride(), 0, made.dtype, made.device)
        return hooks.make_recipe(type(made), *metadata, tuple(vars(made)), others, by_itself)
    facts = (type(made), made.size(), made.stride(), made.dtype, made.layout, made.device)
    return _writer(tuple(names), tuple(vars(made)))(by_itself, *facts, *others.values())


@functools.cache
def _writer(names: tuple[str, ...], attributes: tuple[str, ...]) -> Callable[..., Rebuild]:
    """Generates what makes replays of wrappers with these inner tensors and attributes: compiling takes long.

    Attributes are set in the order in which the class sets them.
    """
    tensors = {name: f"t{i}" for i, name in enumerate(names)}
    others = {name: f"other{i}" for i, name in enumerate(attributes) if name not in tensors}
    params = ", ".join(["by_itself", "cls", "size", "stride", "dtype", "layout", "device", *others.values()])
    source = Source("write_replay", params, "What makes wrappers as their class makes them.")
    inner = ", ".join(tensors.values())
    with source.block(f"def replay({inner}):"):
        if tensors:
            unlike = " or ".join(f"{tensor}.storage_offset() or {tensor}.requires_grad" for tensor in tensors.values())
            source.line(f"if {unlike}: return by_itself({inner})")
        make = source.const(_torch.wrappers.make_wrapper_subclass, "make_wrapper_subclass")
        source.line(f"made = {make}(cls, size, stride, None, None, dtype, layout, device)")
        pairs = ", ".join(f"{name!r}: {(tensors | others)[name]}" for name in attributes)
        source.line(f"made.__dict__.update({{{pairs}}})")
        source.line("return made")
    source.line("return replay")
    return source.build()


def _compared(replay: Rebuild, by_itself: Rebuild) -> Rebuild:
    """Returns a replay that compares each time whether the class makes the same."""

    def make(*inner: Any) -> torch.Tensor:
        made, original = replay(*inner), by_itself(*inner)
        why = _difference(original, made)
        if why:
            raise PlanError(_UNLIKE.format(cls=type(original).__name__, why=why))
        return made

    return make


def _difference(one: torch.Tensor, other: torch.Tensor) -> str:
    """Returns the first property in which two wrappers of the same inner tensors differ; "" if there is none."""
    for name, mine, theirs in zip(_PROPERTIES, _properties(one), _properties(other), strict=True):
        if mine != theirs:
            return f"{name} is {theirs}, not {mine}"
    if list(vars(one)) != list(vars(other)):
        return f"its attributes are {list(vars(other))}, not {list(vars(one))}"
    for name, value in vars(one).items():
        theirs = vars(other)[name]
        if value is not theirs and not (type(value) is type(theirs) and _cannot_change(value) and value == theirs):
            return f"{name} is another object"
    return ""


_PROPERTIES = (
    "class", "size", "stride", "storage offset", "dtype", "device", "layout", "requires_grad", "leaf", "version",
    "bytes of memory", "conjugate bit", "negative bit", "view", "inference", "keys",
)  # fmt: skip


def _properties(tensor: torch.Tensor) -> tuple[object, ...]:
    with _torch.dispatch.disable_torch_function():
        version = None if tensor.is_inference() else _torch.autograd.version_of(tensor)
        return (
            type(tensor), tensor.size(), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device,
            tensor.layout, tensor.requires_grad, tensor.is_leaf, version,
            tensor.untyped_storage().nbytes(), tensor.is_conj(), tensor.is_neg(), _torch.autograd.is_view(tensor),
            tensor.is_inference(), _torch.wrappers.dispatch_keys(tensor),
        )  # fmt: skip
