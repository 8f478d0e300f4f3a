"""Guards on sizes that are symbols: Note [Symbolic sizes]."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from subclass_aot.codegen import GuardedSource
from subclass_aot.symbols import Number, Symbols, is_symbolic, plain

Kind = Literal["size", "stride"]


class Read(NamedTuple):
    """A place where a symbolic number is read.

    Attributes:
        tensor: The local of the tensor.
        kind: What is read of it.
        dim: The dimension.
        number: The number that it is.
        local: The local that will hold it.
    """

    tensor: str
    kind: Kind
    dim: int
    number: Number
    local: str


@dataclass(slots=True)
class SizeGuards:
    """Collects where symbolic sizes are read, and says what must hold of them.

    Attributes:
        reads: These places.
    """

    reads: list[Read] = field(default_factory=list)

    def read(self, source: GuardedSource, tensor: str, kind: Kind, dim: int, number: Number) -> str:
        """Notes a place; returns the local that will hold the number."""
        local = source.fresh(f"{tensor}_{kind}_{dim}")
        self.reads.append(Read(tensor, kind, dim, number, local))
        return local

    def known(self, tensor: str, kind: Kind, symints: list[Any]) -> list[int | None]:
        """Returns sizes or strides with None for symbolic ones, and for nested ints, which are no numbers."""
        of_tensor = [read for read in self.reads if (read.tensor, read.kind) == (tensor, kind)]
        symbolic = {read.dim for read in of_tensor if is_symbolic(plain(read.number))}
        return [None if dim in symbolic or type(number) is not int else number for dim, number in enumerate(symints)]

    def write(self, source: GuardedSource, symbols: Symbols) -> None:
        """Appends what reads the sizes, and the assumptions about them. Those may use `math`."""
        bound: set[str] = set()
        late: list[str] = []
        for tensor, kind, dim, number, local in self.reads:
            source.line(f"{local} = {tensor}.{kind}({dim})")
            text = symbols.text(plain(number))
            if text.isidentifier() and text not in bound:  # the first place of a symbol says what it is
                bound.add(text)
                source.line(f"{text} = {local}")
            else:  # a number that became known, too: another input may be the same tensor, with a symbol there
                late.append(f"{local} != {text}")
        for condition in late:
            source.refuse_if(condition)
        for assumption, place in symbols.assumptions(bound):
            source.refuse_if(f"not ({assumption})", place)
