"""A context variable as a mapping, which has one name or none."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any

from subclass_aot.errors import LastingChangeError

_NAME = "get()"

_UNSET = """A call of the function leaves context variable {name} without a value, where it had one before.
  Python unsets one by the token of the `set` before which it had none; no later call has that token.
  Instead: reset the variable outside of the compiled function."""


class ContextVariable(MutableMapping[str, Any]):
    """What `get()` of a context variable gives in this context, by that name; nothing where that is an error.

    A trace runs in a copy of the context, so what the function sets there is gone with it, and the call sets it.

    Args:
        variable: The variable.
    """

    __slots__ = ("_variable",)

    def __init__(self, variable: ContextVar[Any]) -> None:
        self._variable = variable

    def __getitem__(self, name: str) -> Any:
        try:
            return self._variable.get()
        except LookupError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: object) -> None:
        self._variable.set(value)

    def __delitem__(self, name: str) -> None:
        self._variable.set(None)  # no tensor of a trace stays in the copy that the trace runs in
        raise LastingChangeError(_UNSET.format(name=self._variable.name))

    def __iter__(self) -> Iterator[str]:
        return iter((_NAME,) if len(self) else ())

    def __len__(self) -> int:
        try:
            self._variable.get()
        except LookupError:
            return 0
        return 1
