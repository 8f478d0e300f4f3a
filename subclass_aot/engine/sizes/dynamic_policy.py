"""Decides which sizes are symbols: what `dynamic` means."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from subclass_aot.engine.call import Arguments
from subclass_aot.engine.sizes.dynamic_sizes import DynamicSizes, marked_sizes, tensors_of


class DynamicPolicy:
    """The sizes that one compiled function has seen, and which of them are symbols from now on.

    With `dynamic=None` a size is a number until it is seen to differ; then it is a symbol, for good. With `True` all
    sizes are symbols from the start but those of parameters and buffers, which seldom change. `False` keeps every size
    a number, marked ones too.

    Args:
        dynamic: The policy.
    """

    def __init__(self, dynamic: bool | None) -> None:
        self.dynamic = dynamic
        self._seen: dict[str, tuple[list[object], list[object]]] = {}
        """By path, sizes and strides; None where they differed."""
        self._kept: list[str] = []

    def keep(self, places: Collection[str]) -> None:
        """Has sizes stay numbers from now on: with symbols, the solver finds no answer."""
        self._kept += [place for place in places if place not in self._kept]

    def kept_in(self, text: str) -> list[str]:
        """Returns the sizes that stay numbers, of the tensors whose paths stand in a text."""
        return [place for place in self._kept if f"{place.rpartition('.')[0]}:" in text]

    def without_symbols(self) -> DynamicSizes | None:
        """Returns what is a symbol where no size of an input may be one."""
        return DynamicSizes() if self.dynamic else None

    def next(self, arguments: Arguments) -> DynamicSizes | None:
        """Returns what is a symbol in the trace of this call. None where even sizes that depend on data are refused."""
        if self.dynamic is False:
            return None
        found = marked_sizes(arguments)
        paths: set[str] = set()
        twice: set[str] = set()
        for path, tensor, is_state in tensors_of(arguments):
            (twice if path in paths else paths).add(path)
            size, stride = tensor.size(), tensor.stride()
            seen_size, seen_stride = self._seen.get(path, ([], []))
            if len(seen_size) != len(size):  # nothing was seen yet of a tensor of this rank
                self._seen[path] = list(size), list(stride)
            else:
                self._seen[path] = _merged(seen_size, size), _merged(seen_stride, stride)
            if self.dynamic and not is_state:
                found.sizes.setdefault(path, set()).update(range(len(size)))
            elif self.dynamic is None:
                for table, numbers in zip((found.sizes, found.strides), self._seen[path], strict=True):
                    changed = {dim for dim, n in enumerate(numbers) if n is None}
                    if changed:
                        table.setdefault(path, set()).update(changed)
        if twice:  # what has the name of another has no symbol, since that would be the symbol of both
            found = found.without(twice)
        for path, tensor in arguments.changing_numbers:
            found.sizes.setdefault(path, set()).update(range(tensor.dim())[:1])
        if self._kept:
            found = found.without_places(self._kept)
        # With `True`, results may have sizes that depend on data.
        return found if found or self.dynamic or arguments.changing else None


def _merged(seen: Sequence[object], now: Sequence[object]) -> list[object]:
    """Keeps the numbers that are as they were. Where one differed once, it is None for good."""
    return [n if s is not None and s == n else None for s, n in zip(seen, now, strict=True)]
