"""Which method of a class is to blame: it runs where clauses are broken, and does not run where they are kept.

Note [Blame]
~~~~~~~~~~~~
While a clause is tried, a profiler notes which functions of the class run: methods, rules, and functions of its module
that these call. The function of which the most of its runs, and the most of all broken ones, are broken comes first
(the coefficient of Ochiai, Abreu et al., "An evaluation of similarity coefficients for software fault localization",
2006: `broken(f) / sqrt(broken * (broken(f) + kept(f)))`). What it explains is set aside, and the next is looked for
among the rest, so two mistakes are two causes.

A clause about one method (`__tensor_flatten__` and its context, for example) blames that, since all clauses run it.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Literal

import torch

from subclass_aot._stack import is_own_file
from subclass_aot.declaration import Declaration
from subclass_aot.put_back import PutBack

Kind = Literal["method", "rule", "function"]


@dataclass(frozen=True)
class Method:
    """A function of a class.

    Attributes:
        name: By which its author knows it: "from_plain", or the operators that a rule is for.
        kind: "method"; "rule"; or "function": of the module, or of a base and overridden, which a method may call.
        file: Where it is written.
        line: Where it begins.
    """

    name: str
    kind: Kind
    file: str
    line: int

    def __str__(self) -> str:
        called = f"the rule for {self.name}" if self.kind == "rule" else f"`{self.name}`"
        return f"{called} ({self.file.rpartition('/')[2]}:{self.line})"


@dataclass(frozen=True)
class Run:
    """A program that was tried: whether it was broken, and what of the class ran."""

    is_broken: bool
    methods: frozenset[Method]


def methods_of(cls: type) -> dict[CodeType, Method]:
    """Returns the functions that the authors of a class have written, by their code."""
    found: dict[CodeType, Method] = {}

    def add(function: object, name: str, kind: Kind) -> None:
        for each in _unwrapped(function):
            code = each.__code__
            if not is_own_file(code.co_filename):
                found.setdefault(code, Method(name, kind, code.co_filename, code.co_firstlineno))

    own = [each for each in cls.__mro__ if each is cls or _is_written(each)]
    for each in own:
        for name, value in vars(each).items():
            add(value, name, "method" if inspect.getattr_static(cls, name) is value else "function")
            for operators, rule in _in_table(value) if name != "_handlers" else ():
                add(rule, operators, "rule")
        declaration = vars(each).get("__wrapper_declaration__")
        for rule, operators in _rules(declaration).items():
            add(rule, operators, "rule")  # also where the module has a function of that name
    for module in {each.__module__ for each in own}:
        for name, value in vars(sys.modules.get(module, ModuleType(""))).items():
            if getattr(value, "__module__", None) == module and isinstance(value, FunctionType):
                add(value, name, "function")
    return found


class Watch:
    """Notes which functions of a class run. See Note [Blame].

    Args:
        cls: The class.

    Attributes:
        runs: What was noted.
    """

    def __init__(self, cls: type) -> None:
        self._known = methods_of(cls)
        self._ran: set[Method] = set()
        self._is_paused = False
        self.runs: list[Run] = []

    def check(self, check: Callable[[], None]) -> None:
        """Runs a check, and notes what ran, if it has no parts that are noted by themselves.

        Raises:
            Exception: What the check raises. It is broken if that is an `AssertionError`, and else neither broken nor
                kept, as what a class does not offer.
        """
        before, self._ran, noted = self._ran, set(), len(self.runs)
        is_broken: bool | None = False
        try:
            with PutBack(functools.partial(sys.setprofile, sys.getprofile())):
                sys.setprofile(self._note)
                check()
        except AssertionError:
            is_broken = True
            raise
        except Exception:
            is_broken = None
            raise
        finally:
            if is_broken is not None and len(self.runs) == noted:
                self.runs.append(Run(is_broken, frozenset(self._ran)))
            self._ran = before

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Notes nothing in the block."""
        before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and not self._is_paused:
            method = self._known.get(frame.f_code)
            if method is not None:
                self._ran.add(method)


def suspects(runs: Sequence[Run]) -> list[tuple[Method, float]]:
    """Returns the methods that ran in a broken program, and how suspicious each is, the most suspicious first.

    See Note [Blame].

    >>> rule, reading = Method("aten.mul", "rule", "a.py", 3), Method("to_plain", "method", "a.py", 1)
    >>> both, one = frozenset([rule, reading]), frozenset([reading])
    >>> for method, suspicion in suspects([Run(True, both), Run(False, one), Run(False, one)]):
    ...     print(method.name, round(suspicion, 2))
    aten.mul 1.0
    to_plain 0.58
    """
    broken = [run for run in runs if run.is_broken]

    def suspicion(method: Method) -> float:
        failed = sum(method in run.methods for run in broken)
        passed = sum(method in run.methods for run in runs) - failed
        return failed / math.sqrt(len(broken) * (failed + passed))

    ran = {method: suspicion(method) for run in broken for method in run.methods}
    # Of two that are as suspicious the rule comes first.
    order = sorted(ran, key=lambda method: (-round(ran[method], 6), method.kind != "rule", method.line))
    return [(method, ran[method]) for method in order]


def _is_written(cls: type) -> bool:
    """Returns whether a base is a part of the class, and not of torch or of this library's base."""
    if cls in (object, torch.Tensor) or cls.__module__.startswith(("torch.", "torch._")):
        return False
    return not cls.__module__.startswith("subclass_aot.") or cls.__module__.startswith("subclass_aot.tensors.")


def _unwrapped(value: object) -> Iterator[FunctionType]:
    """Yields the functions in Python that a descriptor or decorator holds."""
    if isinstance(value, property):
        parts: Sequence[object] = (value.fget, value.fset)
    elif isinstance(value, staticmethod | classmethod):
        parts = (value.__func__,)
    elif isinstance(value, functools.partial | functools.cached_property):
        parts = (value.func,)
    else:
        parts = (inspect.unwrap(value),) if callable(value) else ()
    for part in parts:
        if isinstance(part, FunctionType):
            yield inspect.unwrap(part)
        elif part is not None and part is not value:
            yield from _unwrapped(part)


def _rules(declaration: object) -> dict[Any, str]:
    """Returns the rules of a declaration, each with all operators that it is for."""
    found: dict[Any, list[str]] = {}
    if isinstance(declaration, Declaration):
        for operator, rule in declaration.rules.items():
            found.setdefault(getattr(rule, "function", rule), []).append(str(operator))
    return {rule: ", ".join(operators) for rule, operators in found.items()}


def _in_table(value: object) -> Iterator[tuple[str, object]]:
    """Yields the rules in tables that a class has as attributes, by operator, as torchao's classes do."""
    if isinstance(value, dict):
        for key, held in value.items():
            if isinstance(held, dict):
                yield from _in_table(held)
            elif callable(held) and not isinstance(held, type):
                yield str(key), held
