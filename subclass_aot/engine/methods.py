"""Compiled functions in classes: they bind as the functions that they are made of, and are found by name."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import torch

from subclass_aot.base.put_back import PutBack
from subclass_aot.base.texts import counted

_NO_CALL = """aot_compile: {kind} cannot be called.
  What is compiled is a function, a module, or an object with `__call__`.
  Instead: compile the function itself, as in functools.cached_property(aot_compile(function)); as a decorator,
  @aot_compile stands below that one, next to the function."""


class _Compiled(Protocol):
    fn: Any

    @property
    def __call__(self) -> Callable[..., Any]: ...


def compiled_inside(fn: object, compile_: Callable[[Any], Any]) -> Any:
    """Returns a static method, class method or property whose function is compiled; None for what can be called.

    Args:
        fn: What is to be compiled.
        compile_: Compiles a function.

    Raises:
        TypeError: It cannot be called.
    """
    if isinstance(fn, staticmethod | classmethod):
        return type(fn)(compile_(fn.__func__))
    if isinstance(fn, property):
        return type(fn)(compile_(fn.fget), fn.fset, fn.fdel, fn.__doc__)
    if not callable(fn):
        raise TypeError(_NO_CALL.format(kind=repr(type(fn).__qualname__)))
    return None


def bound(compiled: _Compiled, instance: object, owner: type | None) -> Any:
    """Returns what Python gives for `instance.compiled` where a class holds a compiled function.

    A function becomes a method of its object. A module, a partial function or a bound method stays what it is.

    Args:
        compiled: The compiled function.
        instance: The object; None if it was asked of the class.
        owner: The class.
    """
    fn = compiled.fn
    stays = instance is None or not hasattr(type(fn), "__get__") or fn.__get__(instance, owner) is fn
    return compiled if stays else types.MethodType(compiled, instance)


def name_of(compiled: _Compiled) -> str | None:
    """Returns the name by which a module of Python has a compiled function, as it has functions; None if it has none.

    Args:
        compiled: The compiled function.
    """
    name = getattr(compiled.fn, "__qualname__", None)
    found: Any = sys.modules.get(getattr(compiled.fn, "__module__", None) or "")
    for part in (name or "").split("."):
        found = getattr(found, part, None)
    return name if found is compiled else None


def attributes_of_module(module: torch.nn.Module) -> dict[str, Any]:
    """Returns what a compiled module has of a function: a name, and the signature of its `forward`.

    Args:
        module: The module.
    """
    found: dict[str, Any] = {"__name__": type(module).__name__, "__qualname__": type(module).__qualname__}
    try:
        found["__signature__"] = inspect.signature(module.forward)
    except (TypeError, ValueError):  # written in TorchScript
        return found
    return found


def repr_of(compiled: _Compiled, compiler: str, count: int) -> str:
    """Returns the text of a compiled function.

    Args:
        compiled: The compiled function.
        compiler: What compiles its graphs.
        count: For how many signatures it was compiled.
    """
    fn = compiled.fn
    kind = "module" if isinstance(fn, torch.nn.Module) else "function"
    name = vars(compiled).get("__qualname__", type(fn).__qualname__)
    return f"<compiled {kind} {name} by {compiler}: {counted(count, 'signature')}>"


def attribute_of(compiled: _Compiled, name: str, forward: Callable[[], object]) -> Any:
    """Returns what a compiled module has of the module by a name, as `config` or `generate`.

    Args:
        compiled: The compiled function.
        name: A name that the compiled function itself does not have.
        forward: Returns the compiled `forward` of the module.

    Raises:
        AttributeError: It was not made of a module, or the module has no such attribute.
    """
    fn = vars(compiled).get("fn")  # which is not there yet in a copy that is being made
    if name.startswith("_") or not isinstance(fn, torch.nn.Module):
        raise AttributeError(f"{type(compiled).__name__!r} object has no attribute {name!r}")
    if name == "forward":
        return forward()
    value = getattr(fn, name)
    if not isinstance(value, types.MethodType) or value.__self__ is not fn:
        return value
    return _MethodOfModule(compiled, value, None if hasattr(torch.nn.Module, name) else forward)


class _MethodOfModule:
    """A method of the module that a compiled one was made of.

    What it returns of itself, as `eval()` does, is the compiled one. Where it calls the module, as `generate` does,
    the compiled `forward` runs.

    Args:
        compiled: The compiled module.
        method: The method of the module.
        forward: Returns the compiled `forward`; None for a method that every module has.
    """

    def __init__(self, compiled: _Compiled, method: types.MethodType, forward: Callable[[], Any] | None) -> None:
        functools.update_wrapper(self, method)
        self._compiled, self._method, self._forward = compiled, method, forward

    def __call__(self, *args: object, **kwargs: object) -> Any:
        module: Any = self._method.__self__
        if self._forward is None:
            result = self._method(*args, **kwargs)
            return self._compiled if result is module else result
        before, compiled = vars(module).get("forward"), self._forward()
        undo = partial(delattr, module, "forward") if before is None else partial(setattr, module, "forward", before)
        module.forward = compiled
        with PutBack(undo):
            result = self._method(*args, **kwargs)
        return self._compiled if result is module else result
