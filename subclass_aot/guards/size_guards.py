"""Guards on sizes that are symbols: Note [Symbolic sizes]."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from subclass_aot.codegen import Source
from subclass_aot.symbols import Symbols, is_symbolic, plain


@dataclass(slots=True)
class SizeGuards:
    """Collects where symbolic sizes are read, and says what must hold of them.

    Attributes:
        reads: For each place: the tensor's local, `"size"` or `"stride"`, the dimension, the number that it is, and
            the local that holds it, if it is needed for more than the check.
    """

    reads: list[tuple[str, str, int, Any, str]] = field(default_factory=list)

    def read(self, source: Source, tensor: str, kind: str, dim: int, number: Any) -> str:
        """Notes a place; returns the local that will hold the number."""
        local = source.fresh(f"{tensor}_{kind}_{dim}")
        self.reads.append((tensor, kind, dim, number, local))
        return local

    def known(self, tensor: str, kind: str, numbers: list[Any]) -> list[int | None]:
        """The sizes or strides of a tensor, with None for symbolic ones and for nested ints, which are no numbers."""
        symbolic = {dim for name, what, dim, number, _ in self.reads
                    if (name, what) == (tensor, kind) and is_symbolic(plain(number))}  # fmt: skip
        return [None if dim in symbolic or type(number) is not int else number for dim, number in enumerate(numbers)]

    def lines(self, symbols: Symbols) -> Iterator[str]:
        """The lines of a guard, from reading the sizes to the assumptions about them. They may use `math`."""
        bound: set[str] = set()
        late: list[str] = []
        for tensor, kind, dim, number, local in self.reads:
            yield f"{local} = {tensor}.{kind}({dim})"
            text = symbols.text(plain(number))
            if text.isidentifier() and text not in bound:
                bound.add(text)
                yield f"{text} = {local}"
            else:  # a number that became known, too: another input may be the same tensor, with a symbol there
                late.append(f"if {local} != {text}: return None")
        yield from late
        for assumption, place in symbols.assumptions(bound):
            yield f"if not ({assumption}): return None" + (f"  # {place}" if place else "")
