"""Causes: what of a class is to blame for all that is broken. See Note [Blame]."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from subclass_aot.testing.contract.blame import Method, Run, Watch, methods_of, suspects
from subclass_aot.testing.contract.clause import Clause, is_fault, settled
from subclass_aot.testing.contract.finding import Finding
from subclass_aot.testing.contract.trial import READINGS, BrokenClause, DoesNotApply, Trial

_FLATTEN, _UNFLATTEN = "__tensor_flatten__", "__tensor_unflatten__"

ABOUT: dict[int, tuple[str, ...]] = {
    0: ("from_plain", *READINGS),
    1: ("__new__",),
    2: ("outer", "__new__", *READINGS),
    3: ("__new__",),
    4: ("__new__",),
    7: (_UNFLATTEN, _FLATTEN),
    8: (_FLATTEN,),
    9: (_FLATTEN,),
    10: (_UNFLATTEN, _FLATTEN),
    11: (_UNFLATTEN,),
    12: (_UNFLATTEN,),
    14: (_FLATTEN,),
    15: (_FLATTEN,),
    16: (_FLATTEN,),
    17: (_FLATTEN,),
    18: ("__metadata_guard__",),
    19: ("_stable_hash_for_caching",),
    20: ("__torch_dispatch__",),
    30: ("__coerce_same_metadata_as_tangent__",),
    31: ("__coerce_tangent_metadata__",),
    34: (_FLATTEN,),
    37: ("__reduce_ex__", "__deepcopy__"),
}
"""The methods that clauses are about, by number; all of them where they have to agree with each other."""

_ABOUT_BY_NAME = {
    "from_plain": ("from_plain",),
    "of another": ("from_plain",),
    "reading": READINGS,
    "reading after a write": READINGS,
    "FSDP hooks": ("fsdp_pre_all_gather", "fsdp_post_all_gather"),
    "repr": ("__repr__",),
    "assignment": ("__setattr__",),
}

_WEAK = 0.5
"""What is less suspicious runs in too much that is right: it is no cause beside another one."""


@dataclass(frozen=True)
class Cause:
    """What is to blame.

    Attributes:
        methods: What the author has written; several where they do not agree with each other; none where it is not
            known.
        findings: What is broken by it, the plainest first.
    """

    methods: tuple[Method, ...]
    findings: tuple[Finding, ...]


def causes_of(trial: Trial, findings: Sequence[Finding]) -> list[Cause]:
    """Returns what is to blame for what is broken, in the order of importance.

    Args:
        trial: Of the class.
        findings: All of them. Clauses that are quick are tried once more, to see what runs in them.
    """
    broken = [finding for finding in findings if finding.is_broken]
    if not broken:
        return []
    runs, kept = _runs(trial, findings)
    known = set(methods_of(trial.cls).values())
    left, found = list(broken), list[Cause]()
    for finding in broken:
        methods = _about(finding.clause, known)
        if methods and finding in left:
            mine = [each for each in left if _about(each.clause, known)[:1] == methods[:1]]
            left = [each for each in left if each not in mine]
            narrowest = min((_about(each.clause, known) for each in mine), key=len)
            found.append(Cause(narrowest, tuple(mine)))
    for place, cause in enumerate(found):
        ran = [each for each in left if _is_explained(cause, runs.get(each, []), _all(runs, left), kept)]
        left = [each for each in left if each not in ran]
        found[place] = Cause(cause.methods, (*cause.findings, *ran))
    while left:
        ranked = suspects([*_all(runs, left), *kept])
        strong = [(method, much) for method, much in ranked if much >= _WEAK or not found]
        mine = [each for each in left if strong and any(strong[0][0] in run.methods for run in runs.get(each, []))]
        if not mine:
            break
        left = [each for each in left if each not in mine]
        found.append(Cause((strong[0][0],), tuple(mine)))
    if found:  # what is compiled is not traced: it repeats what is wrong in eager mode
        unseen = [each for each in left if not runs.get(each)]
        left = [each for each in left if each not in unseen]
        found[0] = Cause(found[0].methods, (*found[0].findings, *unseen))
    return [*found, *(Cause((), (each,)) for each in left)]


def _runs(trial: Trial, findings: Sequence[Finding]) -> tuple[dict[Finding, list[Run]], list[Run]]:
    """Returns the broken runs of each finding, and the runs of what was right."""
    trial.watch = watch = Watch(trial.cls)
    broken: dict[Finding, list[Run]] = {}
    for finding in findings:
        if finding.clause.is_quick and finding.verdict in ("kept", "broken", "raises"):
            before = len(watch.runs)
            settled(_checked(watch, finding.clause, trial))
            if finding.is_broken:
                broken[finding] = [run for run in watch.runs[before:] if run.is_broken]
    trial.watch = None
    return broken, [run for run in watch.runs if not run.is_broken]


def _checked(watch: Watch, clause: Clause, trial: Trial) -> Callable[[], None]:
    """Returns a check that raises an `AssertionError` for all that is a fault of the clause."""

    def check() -> None:
        verdict, why = settled(lambda: clause.check(trial), trial.cls)
        if is_fault(clause, verdict):
            raise BrokenClause(why)
        if verdict != "kept":
            raise DoesNotApply(why)

    return lambda: watch.check(check)


def _about(clause: Clause, known: Collection[Method]) -> tuple[Method, ...]:
    """Returns the methods of the class that a clause is about, if it is about any."""
    names = _ABOUT_BY_NAME.get(clause.name) or ABOUT.get(clause.number, ())
    return tuple(m for name in names for m in sorted(known, key=str) if m.name == name and m.kind == "method")


def _all(runs: dict[Finding, list[Run]], findings: Iterable[Finding]) -> list[Run]:
    return [run for finding in findings for run in runs.get(finding, [])]


def _is_explained(cause: Cause, mine: Sequence[Run], broken: Sequence[Run], kept: Sequence[Run]) -> bool:
    """Returns whether a method of a cause ran in what is broken, and nothing that is more suspicious."""
    if not mine:
        return False
    ranked = dict(suspects([*broken, *kept]))
    ran = {method for run in mine for method in run.methods}
    most = max((ranked[method] for method in ran), default=0.0)
    return any(method in ran and ranked[method] >= min(most, _WEAK) for method in cause.methods)
