"""Which method of a class is to blame: it runs where clauses are broken, and does not run where they are kept.

Note [Blame]
~~~~~~~~~~~~
While a clause is tried, a tracer notes which lines of the class run: of methods, rules, and functions of its module
that these call. The line of which the most of its runs, and the most of all broken ones, are broken comes first (the
coefficient of Ochiai, Abreu et al., "An evaluation of similarity coefficients for software fault localization", 2006:
`broken(line) / sqrt(broken * (broken(line) + kept(line)))`). What its function explains is set aside, and the next is
looked for among the rest, so two mistakes are two causes.

A clause about one method (`__tensor_flatten__` and its context, for example) blames that, since all clauses run it.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from traceback import walk_tb
from types import FrameType, FunctionType, ModuleType
from typing import Any, Literal

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, is_own_file
from subclass_aot.base.bytecode import is_raise_statement
from subclass_aot.base.put_back import PutBack
from subclass_aot.errors import InnerTensorError, RuleResultError, SubclassAotError
from subclass_aot.kit.declaration import Declaration

Kind = Literal["method", "rule", "function"]


@dataclass(frozen=True)
class Method:
    """A function of a class.

    Attributes:
        name: By which its author knows it: "from_plain", or the operators that a rule is for.
        kind: "method"; "rule"; or "function": of the module, or of a base and overridden, which a method may call.
        file: Where it is written.
        line: Where it begins.
        suspicious: The line of it that is suspicious, if one is.
    """

    name: str
    kind: Kind
    file: str
    line: int
    suspicious: int = field(default=0, compare=False)

    @property
    def place(self) -> str:
        """Where it begins."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        called = f"the rule for {self.name}" if self.kind == "rule" else f"`{self.name}`"
        return f"{called} ({self.file.rpartition('/')[2]}:{self.suspicious or self.line})"


Lines = frozenset[tuple[Method, int]]


@dataclass(frozen=True)
class Run:
    """A program that was tried: whether it was broken, and which lines of the class ran."""

    is_broken: bool
    lines: Lines

    @property
    def methods(self) -> set[Method]:
        """The functions that ran."""
        return {method for method, _ in self.lines}


def methods_of(cls: type) -> dict[int, Method]:
    """Returns the functions that the authors of a class have written, by the `id` of their code.

    Not by the code: Dynamo makes some that has no hash, and frames run that, too.
    """
    found: dict[int, Method] = {}

    def add(function: object, name: str, kind: Kind) -> None:
        for each in _unwrapped(function):
            code = each.__code__
            if not is_own_file(code.co_filename):
                found.setdefault(id(code), Method(name, kind, code.co_filename, code.co_firstlineno))

    own = [each for each in cls.__mro__ if each is cls or _is_written(each)]
    for each in own:
        for name, value in vars(each).items():
            add(value, name, "method" if inspect.getattr_static(cls, name) is value else "function")
            for operators, rule in _in_table(value) if name != "_handlers" else ():
                add(rule, operators, "rule")
        declaration = vars(each).get("__wrapper_declaration__")
        for rule, operators in _rules(declaration).values():
            add(rule, operators, "rule")  # also where the module has a function of that name
    for module in {each.__module__ for each in own}:
        for name, value in vars(sys.modules.get(module, ModuleType(""))).items():
            if getattr(value, "__module__", None) == module and isinstance(value, FunctionType):
                add(value, name, "function")
    return found


def functions_of(cls: type) -> Iterator[FunctionType]:
    """Yields the functions that the authors of a class have written in it."""
    for each in cls.__mro__:
        if each is cls or _is_written(each):
            for value in vars(each).values():
                yield from (
                    function for function in _unwrapped(value) if not is_own_file(function.__code__.co_filename)
                )


class Watch:
    """Notes which lines of a class run. See Note [Blame].

    Args:
        cls: The class.

    Attributes:
        runs: What was noted.
        calls: Which functions of the class call which others.
    """

    def __init__(self, cls: type) -> None:
        self._known = methods_of(cls)
        self._ran: set[tuple[Method, int]] = set()
        self._is_paused = False
        self.runs: list[Run] = []
        self.calls: set[tuple[Method, Method]] = set()

    def check(self, check: Callable[[], None]) -> None:
        """Runs a check, and notes what ran, if it has no parts that are noted by themselves.

        Raises:
            Exception: What the check raises. It is broken if that is an `AssertionError`, and else neither broken nor
                kept, as what a class does not offer.
        """
        before, self._ran, noted = self._ran, set(), len(self.runs)
        is_known, is_broken = False, True
        try:
            with PutBack(functools.partial(sys.settrace, sys.gettrace())):
                sys.settrace(self._note)
                check()
            is_known, is_broken = True, False
        except AssertionError:
            is_known = True
            raise
        finally:
            if is_known and len(self.runs) == noted:
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

    def _note(self, frame: FrameType, event: str, argument: object) -> Callable[[FrameType, str, object], Any] | None:
        method = None if self._is_paused else self._known.get(id(frame.f_code))
        if method is None:
            return None
        caller = self._caller_of(frame)
        if caller is not None:
            self.calls.add((caller, method))

        def note(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                self._ran.add((method, frame.f_lineno))
            return note

        return note

    def _caller_of(self, frame: FrameType) -> Method | None:
        """Returns the function of the class that is nearest below a call."""
        below = frame.f_back
        while below is not None and id(below.f_code) not in self._known:
            below = below.f_back
        return None if below is None else self._known[id(below.f_code)]


PROTOCOL = ("__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__", "__repr__", "outer_metadata")
"""What all programs run, and has clauses of its own: it is half as suspicious."""


def suspects(runs: Sequence[Run]) -> list[tuple[Method, float]]:
    """Returns the methods that ran in a broken program, each with its most suspicious line, and how suspicious that is.

    The most suspicious comes first.

    See Note [Blame].

    >>> rule, reading = Method("aten.mul", "rule", "a.py", 3), Method("to_plain", "method", "a.py", 1)
    >>> both, one = frozenset([(rule, 4), (rule, 5), (reading, 2)]), frozenset([(rule, 4), (reading, 2)])
    >>> for method, suspicion in suspects([Run(True, both), Run(False, one), Run(False, one)]):
    ...     print(method, round(suspicion, 2))
    the rule for aten.mul (a.py:5) 1.0
    `to_plain` (a.py:2) 0.58
    """
    broken = [run for run in runs if run.is_broken]
    failed = Counter(line for run in broken for line in run.lines)
    ran = Counter(line for run in runs for line in run.lines)
    most: dict[Method, tuple[float, int]] = {}
    for method, line in sorted(failed, key=lambda each: each[1]):
        much = failed[method, line] / math.sqrt(len(broken) * ran[method, line])
        much = round(much / (2 if method.name in PROTOCOL else 1), 6)
        if much > most.get(method, (0.0, 0))[0]:
            most[method] = much, line
    # Of two that are as suspicious the rule comes first.
    order = sorted(most, key=lambda method: (-most[method][0], method.kind != "rule", method.line))
    return [(replace(method, suspicious=most[method][1]), most[method][0]) for method in order]


_REFUSALS = (NotImplementedError, SubclassAotError, KeyError)
"""Errors that refuse an operator by name, wherever they are raised; a table of the class may not have it."""

_OF_RESULTS = (InnerTensorError, RuleResultError)
"""Errors of this library that say what is wrong in what a class makes."""


_SLIPS = (AttributeError, NameError, TypeError, ZeroDivisionError)
"""Errors that nobody raises to refuse an operator."""


def slip_of(error: BaseException, cls: type, is_drawn: bool = False) -> str | None:
    """Returns what an error says of a mistake in the class: what its code ran into, and did not raise by name.

    A class refuses an operator by a `raise` or an `assert` of its own, by a lookup in a table that has it not, and by
    any `NotImplementedError`. What torch raises where the code of the class calls it is no refusal: dense tensors do
    what is tried.

    Args:
        error: What was raised.
        cls: The class.
        is_drawn: Whether the arguments were drawn: those that a class does not serve it may refuse by any error but
            those of `_SLIPS`.

    Returns:
        One line; None for what the class refuses, and for what is raised without its code.
    """
    if _is_refusal(error, cls):
        return None
    known = methods_of(cls)
    if isinstance(error, RuleResultError):  # it says of which rule
        rule = next((f"{method} raises " for method in known.values() if method.place in str(error)), "")
        return f"{rule}{first_line(error)}"
    walked = list(walk_tb(error.__traceback__))
    frames = [(known[id(frame.f_code)], line) for frame, line in walked if id(frame.f_code) in known]
    is_own = bool(frames) and id(walked[-1][0].f_code) in known
    if not frames or (is_drawn and not (is_own and isinstance(error, _SLIPS))):
        return None
    method, line = frames[-1]
    if method.name == "__torch_function__" and id(walked[-1][0].f_code) not in known:
        return None  # it passes on what torch's function is called with
    below = [replace(other, suspicious=at) for other, at in frames if other != method]
    if below and method.name in ("__new__", "__init__"):
        return f"{method} raises {first_line(error)}, of what {below[-1]} gives it"
    return f"{replace(method, suspicious=line)} raises {first_line(error)}"


def _is_refusal(error: BaseException, cls: type) -> bool:
    """Returns whether an error was raised by name, by the class or what it calls that is not torch, or by a tracer."""
    if isinstance(error, _OF_RESULTS):
        return False
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if isinstance(error, _REFUSALS) or last is None:
        return True
    module = str(last.tb_frame.f_globals.get("__name__"))
    if module.startswith(_torch.dispatch.TRACERS):
        return True
    is_of_torch = module.startswith("torch.") and not cls.__module__.startswith("torch.")
    return not is_of_torch and is_raise_statement(last.tb_frame.f_code, last.tb_lasti)


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


def _rules(declaration: object) -> dict[object, tuple[object, str]]:
    """Returns the rules of a declaration, each with all operators that its code is for."""
    found: dict[object, tuple[object, str]] = {}
    for operator, rule in declaration.rules.items() if isinstance(declaration, Declaration) else ():
        rule = getattr(rule, "function", rule)
        code = next((each.__code__ for each in _unwrapped(rule)), rule)
        before = f"{found[code][1]}, " if code in found else ""
        found[code] = rule, f"{before}{operator}"
    return found


def _in_table(value: object) -> Iterator[tuple[str, object]]:
    """Yields the rules in tables that a class has as attributes, by operator, as torchao's classes do."""
    if isinstance(value, dict):
        for key, held in value.items():
            if isinstance(held, dict):
                yield from _in_table(held)
            elif callable(held) and not isinstance(held, type):
                yield str(key), held
