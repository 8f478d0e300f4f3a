"""Has the caches of `functools` forget tensors without data.

A trace and a run without data fill them, as `lru_cache` of a function of sizes, with tensors that have no data. What is
cached may be computed once more, so a cache that holds one is cleared: the graph computes the tensor at each call, and
eager mode, the next trace and the next run compute it anew.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

import torch

from subclass_aot.base.left_alone import reached, running
from subclass_aot.base.shown_type import modules_of_programs

_CACHE = functools._lru_cache_wrapper
_OF_OTHERS = sys.stdlib_module_names | {"torch", "sympy", "mpmath", "optree", "subclass_aot"}
"""Packages whose caches hold no tensors, which are most of all caches."""

_DEPTH = 4
"""Containers one in the other: a cached dict of tuples of tensors, in the table of the cache."""

_CONTAINERS = (dict, list, tuple, set, torch.Tensor)
"""What is searched: wrappers hold tensors, too."""


def clear_if_cache(holder: object) -> bool:
    """Clears a holder of a traced tensor if it is a cache of `functools`.

    Args:
        holder: Any object.

    Returns:
        Whether it is one.
    """
    if type(holder) is not _CACHE:
        return False
    holder.cache_clear()
    return True


def forget_in_caches(tensors: Iterable[object]) -> bool:
    """Clears the caches that hold traced tensors, themselves or in containers.

    Args:
        tensors: The traced tensors.

    Returns:
        Whether there was one. Python looks through all objects for it, which takes tens of milliseconds.
    """
    tensors = list(tensors)
    wanted = set(map(id, tensors))
    found, large = False, False
    for cache in _all_caches() if wanted else ():
        if cache.cache_info().currsize and _is_of_a_program(cache):
            holds = _holds(cache, lambda x: id(x) in wanted, sys.maxsize if cache in _left_alone else _MOST)
            large |= holds is None
            if holds:
                cache.cache_clear()
                found = True
    return _forget_by_referrers(tensors) or found if large else found


_MOST = 50_000
"""With more objects in a cache, the way from the tensors to their holders is shorter."""


def _forget_by_referrers(level: list[Any]) -> bool:
    """Clears the caches that hold tensors, found from these through containers. Returns whether there was one."""
    found, seen = False, {id(level)}
    for _ in range(_DEPTH):
        above: list[Any] = []
        for holder in gc.get_referrers(*level) if level else ():
            if clear_if_cache(holder):
                found = True
            elif isinstance(holder, _CONTAINERS) and id(holder) not in seen and holder is not above:
                seen.add(id(holder))
                above.append(holder)
        level = above
        seen.add(id(level))
    return found


@contextmanager
def forgotten_in_caches(kind: type) -> Iterator[None]:
    """Clears, after the block, the caches that the block has filled with tensors of a kind.

    Args:
        kind: The class of the tensors: no other one, and no class derived from it.
    """
    before = {id(cache): cache.cache_info().misses for cache in _caches()}
    try:
        yield
    finally:
        for cache in _caches():
            if cache.cache_info().misses != before.get(id(cache), 0) and _holds(cache, lambda x: type(x) is kind):
                cache.cache_clear()


_known: weakref.WeakSet[Any] = weakref.WeakSet()
_modules = 0  # how many were imported when the caches were found


def _caches() -> list[Any]:
    """Returns the caches of programs.

    Python finds them by looking through all objects, which takes tens of milliseconds. They come with modules, so that
    is done when other modules were imported.
    """
    global _modules
    if _modules != len(sys.modules):
        _modules = len(sys.modules)
        _known.update(filter(_is_of_a_program, _all_caches()))
    else:
        new = _new_left_alone()
        _left_alone.update(new)
        _known.update(filter(_is_of_a_program, new))
    return list(_known)


def _all_caches() -> list[Any]:
    """Returns all caches of `functools`. Each refers to its class, by which Python finds them."""
    _left_alone.update(_new_left_alone())
    found = [x for x in gc.get_referrers(_CACHE) if type(x) is _CACHE]
    return [*{id(x): x for x in (*found, *_left_alone)}.values()]


_left_alone: weakref.WeakSet[Any] = weakref.WeakSet()


def _new_left_alone() -> list[Any]:
    """Returns the caches that the collector leaves alone and that were not found before.

    A search takes as long as all else. So modules, and what functions have that run, are searched once after each
    `gc.freeze()`: what is made later is not left alone.
    """
    global _marker, _is_frozen
    if not _is_frozen and not gc.get_freeze_count():
        return []
    _is_frozen, objects = True, gc.get_objects()  # of a frozen heap: few, where to count the others takes long
    if len(objects) > _MANY and not gc.get_freeze_count():  # it is frozen no more
        _is_frozen = False
        return []
    if all(each is not _marker for each in objects):  # it was made at the last search, and is left alone now
        _searched_modules.clear()
        _searched_code.clear()
        _marker = []
    modules = {str(names.get("__name__")): names for names in modules_of_programs()}
    functions = running(_searched_code)
    new = [names for name, names in modules.items() if name not in _searched_modules]
    held = list(itertools.chain(*functions.values()))
    _searched_modules.update(modules)
    _searched_code.update(functions)
    return [x for x in itertools.chain(reached(new), reached(held, _NEAR)) if type(x) is _CACHE]


_is_frozen = False
_MANY = 100_000
"""As many objects has a program whose heap is not frozen."""
_NEAR = 5_000
"""Objects that are looked at from the variables of functions that run: some lead to all that there is."""
_marker: list[None] = []
_searched_modules: set[str] = set()
_searched_code: weakref.WeakSet[CodeType] = weakref.WeakSet()


def take_as_searched(modules: Iterable[str]) -> None:
    """Has modules be searched no more until the next `gc.freeze()`.

    Args:
        modules: Their names.
    """
    global _marker
    _searched_modules.update(modules)
    _marker = []


def _is_of_a_program(cache: object) -> bool:
    module = getattr(cache, "__module__", None)
    return not isinstance(module, str) or module.partition(".")[0] not in _OF_OTHERS


def _holds(cache: object, is_wanted: Callable[[object], bool], most: int = sys.maxsize) -> bool | None:
    """Returns whether a tensor of some is in a cache, itself or in containers; None if more than `most` objects are."""
    level = [cache]
    for _ in range(_DEPTH):
        level = gc.get_referents(*level)
        if len(level) > most:
            return None
        if any(map(is_wanted, level)):
            return True
        level = [x for x in level if isinstance(x, _CONTAINERS)]
    return False
