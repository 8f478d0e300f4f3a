"""A source builder that knows nothing of what it builds, and the one `exec` of the project."""

from __future__ import annotations

import builtins
import functools
import itertools
import keyword
import linecache
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

_INDENT = "    "
_serial = itertools.count()

constant_checks: list[Callable[[object, str], None]] = []
"""Called with each constant of a generated function, and its name; they raise for one that must not be there."""


class _Lines(Sequence[str]):
    """The lines of a text, which is split when they are read, by a debugger or a traceback. Few texts are read.

    The lines are not kept: a line costs as much memory again as the text in it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __len__(self) -> int:
        return len(self._lines())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._lines()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines())

    def _lines(self) -> list[str]:
        return self._text.splitlines(keepends=True)


class Source:
    """The text of one function, built line by line, with the values it refers to.

    Generated functions are named, carry a docstring and stand in `linecache`, so that
    `inspect.getsource`, tracebacks and the debugger show them like written ones.

    Args:
        name: The function's name; characters that Python does not allow become `_`.
        params: The parameter list as it stands between the parentheses.
        doc: One line that says what the function does.

    >>> source = Source("double", "x", "Twice `x`.")
    >>> two = source.const(2, "two")
    >>> source.line(f"return x * {two}")
    >>> print(source)
    def double(x):
        \"\"\"Twice `x`.\"\"\"
        return x * two
    >>> source.build()(21)
    42
    """

    def __init__(self, name: str, params: str, doc: str = "") -> None:
        self.name = identifier(name)
        self.globals: dict[str, Any] = {}
        self._names_of_constants: dict[int, str] = {}
        self._taken: set[str] = {self.name, *re.findall(r"\w+", params)}
        self._next_suffix: dict[str, int] = {}  # so that a thousand names with one hint cost a thousand steps
        self._depth = 1
        self._lines = [f"def {self.name}({params}):"]
        if doc:
            self.line('"""' + doc.replace("\\", "\\\\").replace('"""', "'''") + '"""')
        self._empty_length = len(self._lines)

    def line(self, text: str = "") -> None:
        """Appends one line at the current indentation."""
        self._lines.append(_INDENT * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Appends `head` and indents what is added inside the `with`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, hint: str) -> str:
        """Returns a name that nothing in this function and no builtin has yet, close to `hint`."""
        base = name = identifier(hint)
        while name in self._taken or hasattr(builtins, name):
            suffix = self._next_suffix[base] = self._next_suffix.get(base, 0) + 1
            name = f"{base}_{suffix}"
        self._taken.add(name)
        return name

    def const(self, value: object, hint: str = "const") -> str:
        """Returns the name under which the generated function sees `value`; one name per object.

        Raises:
            SubclassAotError: One of `constant_checks` refuses it.
        """
        if getattr(builtins, hint, self) is value:
            return hint
        name = self._names_of_constants.get(id(value))
        if name is None:
            for check in constant_checks:
                check(value, hint)
            name = self._names_of_constants[id(value)] = self.fresh(hint)
            self.globals[name] = value  # keeps the object alive, so that its id stays its own
        return name

    def __str__(self) -> str:
        return "\n".join(self._lines)

    def build(self, what: str = "generated") -> Callable[..., Any]:
        """Compiles the text and returns the function.

        Args:
            what: What tracebacks call it: a "program" is a function as a user might write it.

        Returns:
            The function. Its text is in `function.__source__` and in `linecache` for as long as it lives.
        """
        if len(self._lines) == self._empty_length:
            self.line("pass")
        text = str(self)
        filename = f"<subclass_aot {what} {next(_serial)}: {self.name}>"
        namespace = dict(self.globals)
        namespace["__name__"] = "subclass_aot.generated" if what == "generated" else what  # a program is the user's
        exec(compile(text, filename, "exec"), namespace)
        function: Callable[..., Any] = namespace.pop(self.name)
        function.__source__ = text  # type: ignore[attr-defined]
        lines: Any = _Lines(text)  # no list, but whoever reads it only counts, indexes and slices
        linecache.cache[filename] = (len(text), None, lines, filename)
        weakref.finalize(function, linecache.cache.pop, filename, None)
        return function


class GuardedSource(Source):
    """The text of a function that begins with conditions under which it returns at once.

    Args:
        name: As in `Source`.
        params: As in `Source`.
        doc: As in `Source`.
        refusal: What it returns then: a value, and its name.

    >>> source = GuardedSource("root", "x", "The square root.", (None, "None"))
    >>> source.refuse_if("x < 0")
    >>> source.line("return x ** 0.5")
    >>> print(source.build()(-1), source.build()(4))
    None 2.0
    """

    def __init__(self, name: str, params: str, doc: str, refusal: tuple[object, str]) -> None:
        super().__init__(name, params, doc)
        value, hint = refusal
        self._refusal = "None" if value is None else self.const(value, hint)
        self._is_trusted = False

    @contextmanager
    def trusted(self) -> Iterator[None]:
        """Runs the block, in which conditions are left out: the caller checks them."""
        before, self._is_trusted = self._is_trusted, True
        yield
        self._is_trusted = before

    def refuse_if(self, condition: str, comment: str = "") -> None:
        """Appends a condition."""
        if self._is_trusted:
            return
        self.line(f"if {condition}: return {self._refusal}" + (f"  # {comment}" if comment else ""))


@functools.lru_cache(maxsize=4096)
def identifier(text: str) -> str:
    """Returns `text` as a Python identifier.

    >>> identifier("aten.add.Tensor"), identifier("0th"), identifier("class")
    ('aten_add_Tensor', '_0th', 'class_')
    """
    name = re.sub(r"\W+", "_", re.sub(r"^\W+|\W+$", "", text))
    if not name or name[0].isdigit():
        name = "_" + name
    return name + "_" if keyword.iskeyword(name) else name
