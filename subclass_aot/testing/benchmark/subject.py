"""The class that is measured, and how a tensor of it is made."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.errors import UnknownClassError
from subclass_aot.kit.declaration import Declaration

_SIZE = (64, 64)

_NO_TENSOR = """{target} gives no tensor of a wrapper class: {why}.
  Instead: write a function without parameters that returns one, and name it as MODULE:FUNCTION"""


@dataclass(frozen=True)
class Maker:
    """Gives new tensors of one class.

    Args:
        name: What the command line calls it.
        make: Gives a new tensor.
    """

    name: str
    make: Callable[[], torch.Tensor]


def find_maker(target: str) -> Maker:
    """Finds the function `MODULE:FUNCTION`, or makes one of the class `MODULE:CLASS`.

    A class is given a random matrix in `from_float`, if it has that, or one for each parameter of its constructor.

    Args:
        target: An importable module and, after a colon, a function or a class.

    Raises:
        UnknownClassError: There is no such thing, or it gives no wrapper tensor.

    >>> type(find_maker("subclass_aot.tensors:TwoTensor").make()).__name__
    'TwoTensor'
    """
    module, _, name = target.partition(":")
    if not (module and name):
        raise UnknownClassError(f"{target!r} is not of the form MODULE:FUNCTION or MODULE:CLASS")
    try:
        found: object = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as error:
        raise UnknownClassError(f"there is no {target}: {error}") from error
    if not callable(found):
        raise UnknownClassError(f"{target} is a {type(found).__name__}; a function that gives a new tensor is wanted")
    make: Callable[[], torch.Tensor] = (lambda: _made_by(found)) if isinstance(found, type) else found
    try:
        given = make()
    except Exception as error:  # of the function or the class that was named
        pass_on_interruption(error)
        raise UnknownClassError(_NO_TENSOR.format(target=target, why=first_line(error))) from error
    if not _torch.wrappers.is_traceable_wrapper_subclass(given):
        why = f"it gives a {type(given).__name__}, which has no __tensor_flatten__"
        raise UnknownClassError(_NO_TENSOR.format(target=target, why=why))
    return Maker(target, make)


def _made_by(cls: type) -> torch.Tensor:
    if not issubclass(cls, torch.Tensor):
        raise TypeError(f"{cls.__name__} is no class of tensors")
    from_float: Callable[[torch.Tensor], torch.Tensor] | None = getattr(cls, "from_float", None)
    if from_float is not None:
        return from_float(torch.randn(_SIZE))
    matrices = {name: torch.randn(_SIZE) for name in _required(cls)}
    made: torch.Tensor = cls(**matrices)
    return made


def _required(cls: type) -> list[str]:
    """Returns the parameters of a constructor that have no default."""
    has_new = any("__new__" in vars(base) for base in cls.__mro__[: cls.__mro__.index(torch.Tensor)])
    method: Callable[..., object] = cls.__new__ if has_new else cls.__init__  # type: ignore[misc]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    every = list(inspect.signature(method).parameters.values())[1:]
    return [each.name for each in every if each.default is inspect.Parameter.empty and each.kind in kinds]


def arguments_of(tensor: torch.Tensor) -> Mapping[str, object]:
    """Returns what the constructor of a tensor was given, as far as attributes of those names say it.

    Raises:
        LookupError: A parameter has no attribute of its name.
    """
    declaration = Declaration.of(type(tensor))
    if declaration is not None:
        return {name: getattr(tensor, name) for name in declaration.fields}
    wanted = _required(type(tensor))
    absent = [name for name in wanted if name not in vars(tensor)]
    if absent:
        raise LookupError(f"its constructor takes {absent[0]!r}, and the tensor has no attribute of that name")
    return {name: vars(tensor)[name] for name in wanted}
