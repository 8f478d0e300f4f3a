"""The calls in whose traces a program did what only eager mode can do: the function itself runs them.

Note [What a call builds]
~~~~~~~~~~~~~~~~~~~~~~~~~
Layers build themselves in the first forward: `nn.LazyLinear`, `if self.w is None: self.w = nn.Parameter(...)`. A trace
has no values for parameters, and what is built is there at the next call. So the function itself runs such a call, and
the next one is compiled. That takes no warning, unless the next call of the kind builds as well, or many do.
"""

from __future__ import annotations

from collections.abc import Hashable

_TRIES = 2
"""After so many traces that met what only eager mode can do, calls of this kind are not traced."""

_BUILDS = 8
"""After so many calls that build, a warning says so: each of them is traced, and so is the one after it."""


class Failures:
    """The calls of one function in whose traces it did what only eager mode can do, by their kinds."""

    def __init__(self) -> None:
        self._found: dict[Hashable, list[str]] = {}
        self._builds = 0
        self._built_last: set[Hashable] = set()

    def __bool__(self) -> bool:
        """Returns whether there are calls that are not traced, or may not be."""
        return bool(self._found)

    def note(self, kind: Hashable, why: str, builds: bool = False) -> bool:
        """Notes that a trace met what only eager mode can do; returns whether a warning is to say so.

        Args:
            kind: The kind of the call.
            why: What it met.
            builds: Whether that is to make what is there at the next call. See Note [What a call builds].
        """
        again = kind in self._built_last
        if builds:
            self._builds += 1
            if len(self._built_last) > _BUILDS:  # of each kind one: what is built may make another kind of call
                self._built_last.clear()
            self._built_last.add(kind)
        if builds and not again:
            return self._builds > _BUILDS
        self._found.setdefault(kind, []).append(why)
        return True

    def note_compiled(self, kind: Hashable) -> None:
        """Notes that a call was compiled.

        Args:
            kind: Its kind.
        """
        self._built_last.discard(kind)

    @property
    def may_build(self) -> bool:
        """Whether a call has built something, and none of its kind was compiled since."""
        return bool(self._built_last)

    def why_given_up(self, kind: Hashable) -> str:
        """Returns why calls of a kind are traced no more; "" if they are.

        Args:
            kind: The kind of the call.
        """
        failures = self._found.get(kind, [])
        return failures[-1] if len(failures) >= _TRIES else ""
