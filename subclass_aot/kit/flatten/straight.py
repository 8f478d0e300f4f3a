"""The good path of an unwrap: reads in a straight line, and a few calls that look at the classes of what was read.

What does not fit is left to another function. So it may read first and look afterwards, and needs no words for errors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from subclass_aot.base import hooks
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.codegen import Source
from subclass_aot.kit.flatten import checks
from subclass_aot.kit.flatten.emit import emit_unpack, read_attribute
from subclass_aot.kit.flatten.metas import (
    AbsentMeta,
    ContainerMeta,
    InnerMeta,
    SubclassCreationMeta,
    ValueMeta,
)

Unwrap = Callable[[Sequence[Any]], list[Any]]

LEAST: Final = 3
"""Fewer classes than so many are compared faster one by one."""

FEW: Final = 24
"""Up to so many values one call with all of them is fastest; beyond, lists of them for each depth."""

MANY: Final = 800
"""With more, the values are read in chunks. CPython has 16 KiB at hand for the frames of functions; for a larger frame,
of 1,000 locals say, it allocates memory of the system at each call, and that takes a third of the time."""

CHUNK: Final = 250
"""Up to so many are read at once where there are many."""

GROUP: Final = 30
"""How many wrappers inside of others are compared before the next values are read: these stay in the nearest cache."""


def straight_unwrap(
    metas: Sequence[ValueMeta],
    where: str,
    make_carefully: Callable[[], Unwrap],
    *,
    append_symints: bool = True,
) -> Unwrap:
    """Generates the function from values to their leaves that is fastest for values that fit.

    Args:
        metas: What each value is.
        where: What the function's docstring calls the list.
        make_carefully: Gives the function that decides what happens to values that do not fit; called when needed.
        append_symints: Whether symbolic sizes and strides are leaves.

    Returns:
        The function; the careful one where another would not be faster, or where there is more to compare than classes.

    >>> import torch
    >>> from subclass_aot.tensors import TwoTensor
    >>> from subclass_aot.kit.flatten import create_subclass_meta
    >>> x = torch.ones(2)
    >>> metas = create_subclass_meta([x, TwoTensor(TwoTensor(x, x), x)])
    >>> print(_FastUnwrap(metas, "args", list).in_one_call())
    def unwrap(args):
        \"\"\"The leaves of `args`.\"\"\"
        try:
            args_0, args_1, = args
        except (TypeError, ValueError):
            raise wrong_value_count(args, 2, 'args') from None
        try:
            args_1_a = args_1.a
            if are_exactly(classes, args_0, args_1, args_1_a):
                return [args_0, args_1_a.a, args_1_a.b, args_1.b]
        except Exception as error: pass_on_interruption(error)
        return unwrap_checked((args_0, args_1, ))
    >>> print(_FastUnwrap(metas, "args", list).depth_by_depth())
    def unwrap(args):
        \"\"\"The leaves of `args`.\"\"\"
        try:
            args_0, args_1, = exactly(args, classes)
            args_1_a, = exactly([args_1.a], classes_1)
            return [args_0, args_1_a.a, args_1_a.b, args_1.b]
        except Exception as error: pass_on_interruption(error)
        return unwrap_checked(args)
    """
    if not (hooks.one_call_pays and metas and all(_is_known_by_classes(meta, append_symints) for meta in metas)):
        return make_carefully()
    count = sum(map(_count, metas))
    if count < LEAST:
        return make_carefully()
    good = _FastUnwrap(metas, where, lambda values: make_carefully()(values))
    way = good.in_one_call if count <= FEW else good.depth_by_depth if count <= MANY else good.in_chunks
    return way().build()


def _is_known_by_classes(meta: InnerMeta, append_symints: bool) -> bool:
    """Returns whether nothing but classes is compared, and nothing but attributes is read."""
    if isinstance(meta, SubclassCreationMeta):
        has_numbers = append_symints and meta.included_subclass_symints
        if has_numbers and (meta.symbolic_sizes or meta.symbolic_strides):
            return False
        return all(_is_known_by_classes(inner, append_symints) for inner in meta.attrs.values())
    return not isinstance(meta, ContainerMeta)


def _count(meta: InnerMeta) -> int:
    """Returns how many classes are compared: that of the value, and those of the wrappers and absent tensors in it."""
    inner = meta.attrs.values() if isinstance(meta, SubclassCreationMeta) else ()
    return 1 + sum(_count(part) for part in inner if isinstance(part, SubclassCreationMeta | AbsentMeta))


class _Part(NamedTuple):
    """A value, or a wrapper or absent tensor in it. An inner dense tensor is none: its class is not compared."""

    local: str
    read: str
    meta: InnerMeta

    @property
    def cls(self) -> type:
        return type(None) if isinstance(self.meta, AbsentMeta) else self.meta.cls  # type: ignore[union-attr]


class _FastUnwrap:
    """The text of the good path, of which there are three."""

    def __init__(self, metas: Sequence[ValueMeta], where: str, carefully: Unwrap) -> None:
        self.source = Source("unwrap", "args", f"The leaves of `{where}`.")
        self.where = where
        self.carefully = self.source.const(carefully, "unwrap_checked")
        self.roots = [_Part(self.source.fresh(f"args_{i}"), "", meta) for i, meta in enumerate(metas)]
        self.tuples: dict[tuple[type, ...], tuple[type, ...]] = {}  # one object for equal tuples
        self.locals: dict[tuple[str, str], str] = {}  # the local of a wrapper, its attribute -> the attribute's local

    def _groups(self, roots: Sequence[_Part]) -> Iterator[list[list[_Part]]]:
        """Yields the parts inside of a few values at a time, depth by depth."""
        group: list[list[_Part]] = []
        for root in roots:
            depths, below = [], list(self._below(root))
            while below:
                depths.append(below)
                below = [inner for part in below for inner in self._below(part)]
            if sum(map(len, group + depths)) > GROUP:
                yield group
                group = []
            pairs = itertools.zip_longest(group, depths, fillvalue=())
            group = [[*before, *more] for before, more in pairs]
        yield group

    def _below(self, part: _Part) -> Iterator[_Part]:
        if isinstance(part.meta, SubclassCreationMeta):
            for name, meta in part.meta.attrs.items():
                if isinstance(meta, SubclassCreationMeta | AbsentMeta):
                    if (part.local, name) not in self.locals:
                        self.locals[part.local, name] = self.source.fresh(f"{part.local}_{name}")
                    yield _Part(self.locals[part.local, name], read_attribute(part.local, name), meta)

    def in_one_call(self) -> Source:
        """Emits reads of everything, and then one comparison of all classes."""
        inner = [part for group in self._groups(self.roots) for depth in group for part in depth]
        outer, every = _listed(self.roots), [*self.roots, *inner]
        emit_unpack(self.source, "args", [part.local for part in self.roots], checks.wrong_value_count, self.where)
        with self.source.block("try:"):
            for part in inner:
                self.source.line(f"{part.local} = {part.read}")
            are_exactly = self.source.const(hooks.are_exactly, "are_exactly")
            with self.source.block(f"if {are_exactly}({self._classes(every)}, {_listed(every)}):"):
                self.source.line(f"return [{self._leaves_of(self.roots)}]")
        return self._else_carefully(f"({outer}, )")  # not `args`: an iterator is used up by now

    def depth_by_depth(self) -> Source:
        """Emits the comparison of the classes of one depth of a few values before the reads of the next."""
        with self.source.block("try:"):
            self._read("args", self.roots)
            self.source.line(f"return [{self._leaves_of(self.roots)}]")
        return self._else_carefully("args")

    def in_chunks(self) -> Source:
        """Emits the same for one chunk of the values after the other; the locals of the first values serve for all."""
        leaves = self.source.fresh("leaves")
        with self.source.block("try:"):
            for start, stop in itertools.pairwise(self._bounds()):
                pairs = zip(self.roots, self.roots[start:stop], strict=False)
                chunk = [part._replace(local=first.local) for first, part in pairs]
                last = stop == len(self.roots)
                self._read(f"args[{start}:{'' if last else stop}]", chunk)  # what is too much goes into the last one
                self.source.line(f"{leaves} {'+=' if start else '='} [{self._leaves_of(chunk)}]")
            self.source.line(f"return {leaves}")
        return self._else_carefully("args")

    def _bounds(self) -> Iterator[int]:
        """Yields where the chunks begin, and the end of the last."""
        total = 0
        for i, root in enumerate(self.roots):
            count = _count(root.meta)
            if i == 0 or total + count > CHUNK:
                yield i
                total = 0
            total += count
        yield len(self.roots)

    def _read(self, values: str, roots: Sequence[_Part]) -> None:
        """Appends lines that read `roots` from an expression, and all parts of them."""
        exactly = self.source.const(hooks.exactly, "exactly")
        self.source.line(f"{_listed(roots)}, = {exactly}({values}, {self._classes(roots)})")
        for depth in itertools.chain.from_iterable(self._groups(roots)):
            inner = ", ".join(part.read for part in depth)
            self.source.line(f"{_listed(depth)}, = {exactly}([{inner}], {self._classes(depth)})")

    def _classes(self, parts: Sequence[_Part]) -> str:
        classes = tuple(part.cls for part in parts)
        return self.source.const(self.tuples.setdefault(classes, classes), "classes")

    def _leaves_of(self, roots: Sequence[_Part]) -> str:
        return ", ".join(leaf for root in roots for leaf in self._leaves(root.local, root.meta))

    def _leaves(self, read: str, meta: InnerMeta) -> Iterator[str]:
        if isinstance(meta, SubclassCreationMeta):
            for name, inner in meta.attrs.items():
                is_wrapper = isinstance(inner, SubclassCreationMeta)
                yield from self._leaves(self.locals[read, name] if is_wrapper else read_attribute(read, name), inner)
        elif not isinstance(meta, AbsentMeta):
            yield read

    def _else_carefully(self, values: str) -> Source:
        pass_on = self.source.const(pass_on_interruption, "pass_on_interruption")
        self.source.line(f"except Exception as error: {pass_on}(error)")
        # Not inside the `except`: an error of the careful function has no other error behind it.
        self.source.line(f"return {self.carefully}({values})")
        return self.source


def _listed(parts: Sequence[_Part]) -> str:
    return ", ".join(part.local for part in parts)
