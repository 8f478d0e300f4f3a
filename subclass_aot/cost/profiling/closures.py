"""What a program leads to beside its arguments: in closures, globals, defaults, partial calls and objects of methods.

A step of training often closes over its optimizer. That holds parameters of the model that is passed, so it is copied
with the model; else it would step parameters that get no gradients, and cost nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from subclass_aot.base._stack import is_program_file
from subclass_aot.base.bytecode import named_globals
from subclass_aot.base.left_alone import reached

_ATOMS = (int, float, complex, str, bytes, type, ModuleType, type(None), torch.dtype, torch.device)


class Closures:
    """The functions that a program leads to, and those of their values that belong to a training.

    These are values that lead to tensors that are passed, or that require grad. Constants stay what they are.

    Args:
        roots: What is called, and other objects that may hold such values.
        passed: The ids of the tensors that it is given.
        optimizers: Those that it is given.

    Attributes:
        values: Those values.
    """

    def __init__(
        self, roots: Iterable[object], passed: Collection[int], optimizers: Iterable[torch.optim.Optimizer] = ()
    ) -> None:
        self.values: list[Any] = []
        self._passed = passed
        self._met: dict[int, FunctionType] = {}
        self._leads_to: dict[int, set[int]] = {}
        self._wanted: set[int] = set()
        self._known: set[int] = set()
        for optimizer in optimizers:
            self._optimizer(optimizer)
        for root in roots:
            self._visit(root, None)

    @property
    def functions(self) -> list[FunctionType]:
        """The functions that lead to them, which have to be made anew."""
        found, before = set(self._wanted), -1
        while before != len(found):
            before = len(found)
            found |= {key for key, others in self._leads_to.items() if not found.isdisjoint(others)}
        return [function for key, function in self._met.items() if key in found]

    def _visit(self, value: Any, owner: int | None) -> None:
        """Goes through a value that a function has, or through the program."""
        if isinstance(value, _ATOMS):
            return
        if isinstance(value, weakref.ref):
            self._visit(value(), owner)
        elif isinstance(value, FunctionType):
            self._function(value, owner)
        elif isinstance(value, MethodType):
            self._visit(value.__func__, owner)
            self._visit(value.__self__, owner)
        elif isinstance(value, partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self._visit(part, owner)
        elif self._is_of_training(value):
            self.values.append(value)
            if owner is not None:
                self._wanted.add(owner)
            for x in reached([value]):
                if isinstance(x, torch.optim.Optimizer):
                    self._optimizer(x)

    def _function(self, function: FunctionType, owner: int | None) -> None:
        if owner is not None:
            self._leads_to.setdefault(owner, set()).add(id(function))
        if id(function) not in self._met:
            self._met[id(function)] = function
            for value in parts_of(function):
                self._visit(value, id(function))

    def _optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Goes through the functions that a scheduler has put into an optimizer, which step it."""
        if id(optimizer) not in self._known:
            self._known.add(id(optimizer))
            for function in vars(optimizer).values():
                if isinstance(function, FunctionType | MethodType):
                    self._visit(function, None)

    def _is_of_training(self, value: object) -> bool:
        return any(
            isinstance(x, torch.Tensor) and (id(x) in self._passed or x.requires_grad and x.is_leaf)
            for x in reached([value])
        )


def parts_of(function: FunctionType) -> list[Any]:
    """Returns what a function has: defaults, the globals that its code reads, and what it closes over."""
    found: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    names, code = function.__globals__, function.__code__
    is_typed_in = code.co_filename.startswith("<") and function.__module__ == "__main__"
    if is_typed_in or is_program_file(str(function.__module__), code.co_filename):
        found += [names[name] for name in named_globals(code) if name in names]
    return found + [cell.cell_contents for cell in function.__closure__ or () if not _is_empty(cell)]


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # which is an error where the variable has no value yet
    except ValueError:
        return True
    return False


class Shells:
    """Functions made anew, whose values come later: these may hold the functions.

    Args:
        functions: The functions.
    """

    def __init__(self, functions: list[FunctionType]) -> None:
        self._made: list[tuple[FunctionType, FunctionType]] = []
        self._globals: dict[int, dict[str, Any]] = {}
        for function in functions:
            names = self._globals.setdefault(id(function.__globals__), dict(function.__globals__))
            cells = tuple([CellType() for _ in function.__closure__ or ()])
            made = FunctionType(function.__code__, names, function.__name__, None, cells)
            made.__qualname__, made.__module__ = function.__qualname__, function.__module__
            made.__dict__.update(function.__dict__)
            self._made.append((function, made))

    def __iter__(self) -> Iterator[tuple[FunctionType, FunctionType]]:
        """Iterates over the functions, each with the one that stands for it."""
        return iter(self._made)

    def fill(self, memo: dict[int, Any]) -> None:
        """Gives them their values.

        Args:
            memo: By id, what stands for an object.
        """
        other = partial(self.other, memo=memo)
        for function, made in self._made:
            made.__defaults__ = function.__defaults__ and tuple(map(other, function.__defaults__))
            defaults = function.__kwdefaults__
            made.__kwdefaults__ = defaults and {key: other(value) for key, value in defaults.items()}
            names = made.__globals__
            names.update({key: other(value) for key, value in names.items() if id(value) in memo})
            for cell, before in zip(made.__closure__ or (), function.__closure__ or (), strict=True):
                if not _is_empty(before):
                    cell.cell_contents = other(before.cell_contents)

    def other(self, value: Any, memo: dict[int, Any]) -> Any:
        """Returns what stands for a value, also where it is a call of what is made anew, or a weak reference."""
        if isinstance(value, weakref.ref):
            there = value()
            return weakref.ref(memo[id(there)]) if id(there) in memo else value
        if isinstance(value, MethodType):
            return MethodType(self.other(value.__func__, memo), self.other(value.__self__, memo))
        if isinstance(value, partial):
            keywords = {key: self.other(each, memo) for key, each in value.keywords.items()}
            return partial(self.other(value.func, memo), *[self.other(x, memo) for x in value.args], **keywords)
        return memo.get(id(value), value)
