"""Classes, functions and operators by name: what a file may name, and what a reader finds there."""

from __future__ import annotations

import importlib
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.named import full_name, named
from subclass_aot.base.refused import Refused
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.engine.graph import drawn_named, name_of_drawn
from subclass_aot.subjects import recurrent

_LOCAL = "{name} is defined inside a function, so that no other process finds it. Define it in a module"
_MOVED = "{name} is not what its module has by that name"
_NOT_THERE = "there is no {name} here{why}"
_NO_NAME = "{name!r} is no name of a class or function"
_NO_OPERATOR = "{name!r} is no operator that is known here{why}"

_NAME = re.compile(r"[\w.]+:[\w.]+")
_OPERATOR = re.compile(r"\w+(\.\w+){2}", re.ASCII)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "getitem": operator.getitem, "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "mod": operator.mod, "pow": operator.pow,
    "sym_max": torch.sym_max, "sym_min": torch.sym_min,
}  # fmt: skip
"""Functions that a graph may call beside operators: of the results of one, and of sizes."""


def name_of(thing: Any) -> str:
    """Returns the name of a class or function of a module in a file.

    Raises:
        Refused: No other process would find it.
    """
    name = full_name(thing)
    if "<" in name:
        raise Refused(_LOCAL.format(name=name))
    if named(name) is not thing:
        raise Refused(_MOVED.format(name=name))
    return name


def find(name: object) -> Any:
    """Finds what a file names; its module is imported.

    Args:
        name: As `name_of` gives it.

    Raises:
        Refused: There is nothing of that name.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refused(_NO_NAME.format(name=name))
    module = name.partition(":")[0]
    if module not in sys.modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever the module does
            pass_on_interruption(error)
            raise Refused(_NOT_THERE.format(name=name, why=f": {type(error).__name__}: {error}")) from error
    found = named(name)
    if found is None:
        raise Refused(_NOT_THERE.format(name=name, why=""))
    return found


def operator_named(name: object) -> Any:
    """Finds the operator that a file names, such as `aten.add.Tensor`.

    Raises:
        Refused: There is none.
    """
    func = drawn_named(name, operator_named) if isinstance(name, str) else None
    if func is not None:
        return func
    if not isinstance(name, str) or not _OPERATOR.fullmatch(name):
        raise Refused(_NO_OPERATOR.format(name=name, why=""))
    namespace, _, rest = name.partition(".")
    found = _torch.named_operators.operator_named(namespace, *rest.split("."))
    if found is None:
        raise Refused(_NO_OPERATOR.format(name=name, why=""))
    return found


def name_of_operator(func: Any) -> str:
    """Returns the name of an operator.

    Raises:
        Refused: It is none, or one that was made in this process alone.
    """
    name = str(func)
    if not _torch.operators.is_overload(func) or not _OPERATOR.fullmatch(name):
        raise Refused(f"{getattr(func, '__name__', func)!r} is a function of Python, and no operator")
    drawn = name_of_drawn(func)
    if drawn is not None:
        return drawn
    if (
        func.namespace == "subclass_aot"
        and func not in (recurrent.FOR_TRAINING, recurrent.OF_ANY_SIZE)
        and func not in WRITTEN_OUT
    ):
        raise Refused(f"{name} is an operator that was defined while tracing, for one that writes")
    return name
