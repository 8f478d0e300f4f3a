"""A function and its inputs as Python text that runs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from subclass_aot.base.codegen import Source
from subclass_aot.testing.inputs import Given
from subclass_aot.testing.literals import Names
from subclass_aot.testing.printer import Maker, Printer, maker

NAME = re.compile(r"\b[xvc]\d+(?:_base)?\b")
"""A tensor in the text of a statement: an input, a constant or a value."""


@dataclass(frozen=True)
class Statement:
    """One line of the function.

    Attributes:
        target: What its value is called; "" if nothing reads it.
        text: The expression, or the whole statement.
        mode: The context manager it stands in, as `torch.no_grad()`, or "".
    """

    target: str
    text: str
    mode: str = ""

    @property
    def line(self) -> str:
        """It, as a line of Python."""
        return f"{self.target} = {self.text}" if self.target else self.text

    def reads(self) -> list[str]:
        """Returns the names in it."""
        return list(dict.fromkeys(NAME.findall(self.text)))


@dataclass(frozen=True, eq=False)
class Script:
    """A function without branches, and the tensors it is called with.

    Attributes:
        inputs: Recipes for its arguments, for what it closes over, and for what those are views of.
        statements: Its lines.
        results: The names it returns.
        names: What its text refers to by name.
    """

    inputs: tuple[Given, ...]
    statements: tuple[Statement, ...]
    results: tuple[str, ...]
    names: Names = field(default_factory=Names)

    @property
    def parameters(self) -> list[str]:
        """The names of its arguments."""
        return [given.name for given in self.inputs if given.role == "argument"]

    def body(self) -> list[str]:
        """Returns the lines of the function."""
        lines = []
        mode = ""
        for statement in self.statements:
            if statement.mode != mode and statement.mode:
                lines.append(f"with {statement.mode}:")
            mode = statement.mode
            lines.append(f"    {statement.line}" if mode else statement.line)
        return [*lines, f"return {', '.join(self.results) or None}"]

    @functools.cached_property
    def _make_all(self) -> Maker:
        return maker(self.inputs)

    def make(self) -> tuple[list[Any], list[Any]]:
        """Returns new arguments, and the leaves behind them."""
        values, behind = self._make_all()
        return [v for v, given in zip(values, self.inputs, strict=True) if given.role == "argument"], behind

    def function(self) -> Callable[..., Any]:
        """Returns the function."""
        return self._built(self.body())

    def values(self) -> dict[str, Any]:
        """Returns the tensors that its names stand for at the end of a run, or where it raises."""
        lines = [f"    {line}" for line in self.body()[:-1]]
        function = self._built(["try:", *lines, "    pass", "except Exception:", "    pass", "return locals()"])
        found: dict[str, Any] = function(*self.make()[0])
        return found

    def _built(self, lines: list[str]) -> Callable[..., Any]:
        source = Source("program", ", ".join(self.parameters))
        source.globals.update({"torch": torch, **self.names.values})
        if any(given.role == "constant" for given in self.inputs):
            values, _ = self._make_all()
            for given, value in zip(self.inputs, values, strict=True):
                if given.role == "constant":
                    source.globals[given.name] = value
        for line in lines:
            source.line(line)
        return source.build("program")

    def renamed(self) -> Script:
        """Returns the same, with names counted from 0."""
        new: dict[str, str] = {}
        for prefix, old in (
            ("x", self.parameters),
            ("c", [given.name for given in self.inputs if given.role == "constant"]),
            ("v", [s.target for s in self.statements if s.target]),
        ):
            new |= {name: f"{prefix}{i}" for i, name in enumerate(old)}
        new |= {given.name: f"b{i}" for i, given in enumerate(g for g in self.inputs if g.role == "hidden")}
        return self.substituted(new)

    def substituted(self, new: dict[str, str]) -> Script:
        """Returns the same with other names."""
        done: dict[int, Given] = {}

        def given(old: Given) -> Given:
            if id(old) not in done:
                base = None if old.base is None else given(old.base)
                name = new.get(old.name, old.name)
                done[id(old)] = replace(old, name=name, base=base)
            return done[id(old)]

        def text(old: str) -> str:
            return NAME.sub(lambda found: new.get(found[0], found[0]), old)

        statements = tuple(Statement(text(s.target), text(s.text), s.mode) for s in self.statements)
        return Script(
            tuple(map(given, self.inputs)), statements, tuple(new.get(r, r) for r in self.results), self.names
        )

    def text(self, call: str, names: Names, mode: str = "") -> str:
        """Returns a whole program.

        Args:
            call: The text of the call at its end, in which `program` and `args` stand for the function and its inputs.
            names: What the call refers to by name; the names of this script are added.
            mode: The context manager around the call, as `torch.no_grad()`, or "".
        """
        for name, value in self.names.values.items():
            names.values.setdefault(name, value)
        printer = Printer(names)
        printer.print(self.inputs)
        arguments = "".join(f"{name}, " for name in self.parameters).strip()
        if len(self.parameters) > 1:
            arguments = arguments.removesuffix(",")
        call = call.replace("args", f"({arguments})", 1)
        text = "\n".join(
            [
                "torch.manual_seed(0)",
                *printer.lines,
                "",
                "",
                f"def program({', '.join(self.parameters)}):",
                *(f"    {line}" for line in self.body()),
                "",
                "",
                *([f"with {mode}:", f"    {call}"] if mode else [call]),
            ]
        )
        return "\n".join([*names.imports(text), "", text])
