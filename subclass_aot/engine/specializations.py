"""All that was compiled of one function, for all its signatures, in the order in which a call tries it.

Note [Which signature a call tries]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
The one used last goes first: most functions are called in one way only. Where that does not fit, and there are many,
classes, sizes, dtypes and modes of the call are looked up among those of the calls before it. This is a guess, not a
check: the guard of what is found still decides, and where it refuses, all others are tried in turn.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterator, MutableSet, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.later import Later
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Facts, Scope, facts_of, global_state
from subclass_aot.engine.guards import GuardOptions, StaticInputCache
from subclass_aot.engine.runtime import CompiledGraphs, Entry, Graphs, make_entry
from subclass_aot.engine.signature import JointSignature

explain: Later[..., str] = Later("explain")
"""Says in words what was compiled of a function."""

write_file: Later[..., None] = Later("write_file")
"""Writes what was compiled of a function into a file."""

_FEW = 4
"""Up to how many signatures it is as fast to try them all."""

_KEYS = 8
"""Lookup keys that are kept for each signature that may be kept; one with symbolic sizes has many."""

_BY_VALUE = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})


@dataclass(frozen=True, slots=True, eq=False)
class Specialization:
    """The functions that were compiled for one signature.

    Attributes:
        entry: The generated code: it says whether it fits a call, and runs it.
        graphs: The graphs it runs.
        signature: What their inputs and outputs mean.
        scope: What of a call counts.
        facts: Everything the signature depends on.
        reason: Why it was compiled.
    """

    entry: Entry
    graphs: Graphs
    signature: JointSignature
    scope: Scope
    facts: Facts
    reason: str

    @staticmethod
    def of(
        fn: Callable[..., Any],
        arguments: Arguments,
        signature: JointSignature,
        compiled: CompiledGraphs,
        reason: str,
        together: MutableSet[StaticInputCache],
    ) -> Specialization:
        """Generates the guard and the code around graphs that were compiled for a call.

        Args:
            fn: What is called.
            arguments: The call that was traced, or one like it. It is made now.
            signature: Its signature.
            compiled: Its graphs.
            reason: Why they were compiled.
            together: What the guards of one function keep from call to call.
        """
        scope = Scope.of(signature)
        facts = facts_of(arguments, global_state(), scope)
        entry = make_entry(arguments, signature, compiled, GuardOptions(facts, fn, together))
        return Specialization(entry, compiled.graphs, signature, scope, facts, reason)

    @property
    def places(self) -> dict[str, str]:
        """The sizes and strides of its inputs that are symbols, with their texts."""
        return dict(self.scope.places)

    def with_places(self, differences: list[str]) -> list[str]:
        """Returns what differs from another call, with the place in the program that has assumed a size.

        Args:
            differences: Each as one line.
        """
        symbols = self.signature.assumptions.symbols
        found = list(differences)
        for where, number, place in () if symbols is None else symbols.pinned():
            path = where.rpartition(".")[0]
            for i, line in enumerate(differences):
                if line.startswith(f"{path}: ") and place:
                    name = where if line.startswith(f"{path}: Tensor") else path  # the value is a number
                    found[i] += f" ({name} == {number} is assumed at {place})"
        return found


class Specializations:
    """All that was compiled, the one used last first.

    Threads read it at any time; what is compiled is added by one thread at a time.

    Args:
        limit: How many are kept: the one used longest ago goes first.

    Attributes:
        latest: The one used last.
    """

    def __init__(self, limit: int) -> None:
        self.latest: Specialization | None = None
        self._limit = limit
        self._used_at: dict[Specialization, int] = {}
        self._now = itertools.count()
        self._by_key: dict[Hashable, Specialization] = {}

    def __iter__(self) -> Iterator[Specialization]:
        """Yields all, the one used last first."""
        used_at = list(self._used_at.items())  # at once: another thread may use one meanwhile
        return (specialization for specialization, _ in sorted(used_at, key=operator.itemgetter(1), reverse=True))

    def __len__(self) -> int:
        return len(self._used_at)

    def others(self, key: Hashable) -> Iterator[Specialization]:
        """Yields all but the one used last, first the one that fitted a call of the same lookup key.

        Args:
            key: As `lookup_key` gives it.
        """
        latest = self.latest
        guess = self._by_key.get(key)
        if guess is not None and guess is not latest:
            yield guess
        yield from (each for each in self if each is not latest and each is not guess)

    def use(self, specialization: Specialization, key: Hashable = None) -> None:
        """Notes that one fits a call, or adds one that was compiled for it."""
        self._used_at[specialization] = next(self._now)
        if len(self._used_at) > self._limit:
            for oldest in [*self][self._limit :]:
                self.remove(oldest)
        if key is not None:
            if len(self._by_key) > _KEYS * self._limit:
                self._by_key = {}
            self._by_key[key] = specialization
        self.latest = specialization

    def remove(self, specialization: Specialization) -> None:
        """Removes one that no call is to run any more."""
        self._used_at.pop(specialization, None)
        self._by_key = {known: each for known, each in list(self._by_key.items()) if each is not specialization}
        if self.latest is specialization:
            self.latest = next(iter(self), None)

    def lookup_key(self, leaves: Sequence[object], modes: tuple[object, ...]) -> Hashable:
        """Returns the lookup key of a call, if there are so many signatures that a lookup pays; else None.

        Args:
            leaves: The arguments, flattened.
            modes: The modes of torch.
        """
        return (_key_of(modes), *map(_key_of, leaves)) if len(self._used_at) > _FEW else None


def kind_of(arguments: Arguments, modes: tuple[object, ...]) -> Hashable:
    """Returns the kind of a call: what can be read of it without running code of users.

    Args:
        arguments: The call.
        modes: The modes of torch.
    """
    training = tuple(module.training for _, module in arguments.modules)
    return (_key_of(modes), training, *map(_key_of, arguments.leaves))


def _key_of(leaf: Any) -> Hashable:
    """Returns the key of a leaf or a mode, made of what can be read without running code of users, and kept."""
    if type(leaf) in _BY_VALUE:
        return (type(leaf), leaf)
    if type(leaf) in (tuple, list):  # some modes are several
        return (type(leaf), *map(_key_of, leaf))
    if type(leaf) is dict:
        return (dict, *map(_key_of, leaf.values()))
    if not isinstance(leaf, torch.Tensor) or not _is_mute(type(leaf)):
        return (type(leaf),)
    return (type(leaf), leaf.shape, leaf.dtype, leaf.requires_grad)


def _is_mute(cls: type[torch.Tensor]) -> bool:
    """Returns whether a class runs no code of its own when sizes of its tensors are read."""
    return cls in _PLAIN or cls.__torch_function__ is _torch.wrappers.disabled_torch_function_impl


_PLAIN = (torch.Tensor, torch.nn.Parameter)
