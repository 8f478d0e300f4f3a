"""Guards on sizes that are symbols: Note [Symbolic sizes]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from subclass_aot.base.codegen import GuardedSource

Kind = Literal["size", "stride"]


class Read(NamedTuple):
    """A place where a symbolic number is read.

    Attributes:
        tensor: The local of the tensor.
        kind: What is read of it.
        dim: The dimension.
        text: What it is: an expression over symbols.
        local: The local that will hold it.
    """

    tensor: str
    kind: Kind
    dim: int
    text: str
    local: str


@dataclass(slots=True)
class SizeGuards:
    """Collects where symbolic sizes are read, and says what must hold of them.

    Attributes:
        reads: These places.
    """

    reads: list[Read] = field(default_factory=list)

    def read(self, source: GuardedSource, tensor: str, kind: Kind, dim: int, text: str) -> str:
        """Notes a place; returns the local that will hold the number."""
        local = source.fresh(f"{tensor}_{kind}_{dim}")
        self.reads.append(Read(tensor, kind, dim, text, local))
        return local

    def write(self, source: GuardedSource, assumed: Mapping[str, str]) -> None:
        """Appends what reads the sizes, and the assumptions about them.

        Args:
            source: The guard.
            assumed: The assumptions, each with a place in the source or "". They may use `math`.
        """
        bound: set[str] = set()
        late: list[str] = []
        for tensor, kind, dim, text, local in self.reads:
            source.line(f"{local} = {tensor}.{kind}({dim})")
            if text.isidentifier() and text not in bound:  # the first place of a symbol says what it is
                bound.add(text)
                source.line(f"{text} = {local}")
            else:
                late.append(f"{local} != {text}")
        for condition in late:
            source.refuse_if(condition)
        for assumption, place in assumed.items():
            source.refuse_if(f"not ({assumption})", place)
