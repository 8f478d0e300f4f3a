"""The part of a guard that compares the memory of tensors, and what they have to do with one another and autograd."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import assert_never

from subclass_aot.base import _torch, hooks
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.aliasing import have_one_history, have_own_histories
from subclass_aot.engine.facts import Fact, Kind
from subclass_aot.engine.facts import fact as kinds

Listing = Callable[[Sequence[str]], str]

_FEW = 2
"""Up to how many tensors one comparison for each is as fast as one call."""


def refuse_other_relations(
    source: GuardedSource,
    facts: Iterable[Fact],
    tensors: Sequence[str],
    leaves: Mapping[str, str],
    listing: Listing = ", ".join,
) -> None:
    """Writes those facts of a call that `relations_of` lists; the others are compared where something is read.

    Args:
        source: The guard.
        facts: The facts.
        tensors: The expressions of values, then of views.
        leaves: Those of their leaves in order, each by the position of its tensor and the path from there.
        listing: Lists several of these with commas between.
    """
    ordered = list(leaves.values())
    histories: dict[str, list[kinds.History]] = {}
    for fact in _but_many_leaves(source, list(facts), tensors, listing):
        value = fact.value
        match fact.kind:
            case Kind.LEAF:
                source.refuse_if(f"{tensors[int(fact.within)]}.is_leaf is not {value}")
            case Kind.VIEW:
                rules = source.const(_torch.autograd.view_rules, "view_rules")
                assert isinstance(value, tuple)
                source.refuse_if(f"{rules}({tensors[int(fact.within)]}) != {source.const(value[0], 'rules')}")
            case Kind.STORAGE:
                assert isinstance(value, kinds.Storages)
                _refuse_other_storages(source, value, ordered, listing)
            case Kind.DATA:
                assert isinstance(value, kinds.Constant)
                source.refuse_if(f"{ordered[int(fact.within)]}.tolist() != {source.const(value.value, 'values')}")
            case Kind.BEGINNING:  # how those overlap that share memory is part of the graph
                position, path = re.fullmatch(r"(\d+)(.*)", fact.within).groups()  # type: ignore[union-attr]
                tensor = leaves.get(fact.within, f"{tensors[int(position)]}{path}")
                source.refuse_if(f"{tensor}.storage_offset() != {value}")
            case Kind.BYTES:
                source.refuse_if(f"{ordered[int(fact.within)]}.untyped_storage().nbytes() != {value}")
            case Kind.HISTORY:
                assert isinstance(value, kinds.History)
                histories.setdefault(fact.within, []).append(value)
            case Kind.ADDRESS:
                source.refuse_if(f"id({tensors[int(fact.within)]}) != {value}")
            case (
                Kind.STRUCTURE | Kind.MODE | Kind.CLASS | Kind.IDENTITY | Kind.VALUE | Kind.CODE | Kind.METHOD
                | Kind.STANDS | Kind.OBJECT | Kind.LENGTH | Kind.KEYS | Kind.LIMIT | Kind.NAMES | Kind.CHILDREN
                | Kind.HOOKS | Kind.TENSOR | Kind.SAME | Kind.NUMBER | Kind.TWICE | Kind.GRADIENTS | Kind.SIZE
                | Kind.ASSUMED
            ):  # fmt: skip
                pass
            case _:
                assert_never(fact.kind)
    for together in histories.values():
        _refuse_other_histories(source, together, tensors)


def _refuse_other_histories(source: GuardedSource, together: Sequence[kinds.History], tensors: Sequence[str]) -> None:
    """Writes which tensors have one history: a write that autograd sees reaches these, and no others of a storage."""
    have: dict[int | None, list[str]] = {}
    for value in together:
        have.setdefault(value.first, []).append(tensors[value.position])
    strangers = have.pop(None, [])
    for one in have.values():
        if len(one) > 1:
            source.refuse_if(f"not {source.const(have_one_history, 'have_one_history')}({', '.join(one)})")
    if len(have) > 1 or strangers:
        firsts = [one[0] for one in have.values()]
        apart = source.const(have_own_histories, "have_own_histories")
        source.refuse_if(
            f"not {apart}(({''.join(f'{x}, ' for x in firsts)}), ({''.join(f'{x}, ' for x in strangers)}))"
        )


def _but_many_leaves(
    source: GuardedSource, facts: Sequence[Fact], tensors: Sequence[str], listing: Listing
) -> Sequence[Fact]:
    """Emits one comparison of which of many tensors are leaves of autograd's graph; returns the other facts."""
    leaves = [fact for fact in facts if fact.kind is Kind.LEAF]
    if hooks.memory is None or len(leaves) <= _FEW:
        return facts
    are = source.const(tuple([fact.value for fact in leaves]), "leaves_then")
    names = listing([tensors[int(fact.within)] for fact in leaves])
    source.refuse_if(f"not {source.const(hooks.memory.are_leaves, 'are_leaves')}({are}, {names})")
    return [fact for fact in facts if fact.kind is not Kind.LEAF]


def _refuse_other_storages(
    source: GuardedSource, storages: kinds.Storages, leaves: Sequence[str], listing: Listing
) -> None:
    for first, *others in storages.together:
        for other in others:
            source.refuse_if(f"{_pointer(leaves[other])} != {_pointer(leaves[first])}")
    if len(storages.apart) > 1 and hooks.memory is not None:
        names = listing([leaves[number] for number in storages.apart])
        source.refuse_if(f"not {source.const(hooks.memory.are_apart, 'are_apart')}({names})")
    elif len(storages.apart) > 1:
        pointers = ", ".join(_pointer(leaves[number]) for number in storages.apart)
        source.refuse_if(f"len({{{pointers}}}) != {len(storages.apart)}")


def _pointer(leaf: str) -> str:
    return f"{leaf}.untyped_storage().data_ptr()"
