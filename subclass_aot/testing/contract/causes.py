"""Causes: what of a class is to blame for all that is broken. See Note [Blame]."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from subclass_aot.kit.declaration import Declaration
from subclass_aot.testing.contract.blame import PROTOCOL, Method, Run, Watch, methods_of, suspects
from subclass_aot.testing.contract.clause import Clause, is_fault, settled
from subclass_aot.testing.contract.finding import Finding
from subclass_aot.testing.contract.remedies import SHARES, VIEWS_STATEMENT
from subclass_aot.testing.contract.trial import READINGS, BrokenClause, DoesNotApply, Trial

_FLATTEN, _UNFLATTEN = "__tensor_flatten__", "__tensor_unflatten__"

ABOUT: dict[int, tuple[str, ...]] = {
    0: ("from_plain", *READINGS),
    1: ("__new__",),
    2: ("outer_metadata", "__new__", *READINGS),
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

_ROUND_TRIP = range(7, 11)

_OF_FORMS = ("reading", "own values")
"""Clauses of number 0 that read other forms of the tensor."""

_READERS = ("read", "forward", "backward")
"""What readings call."""

_MOST_HELPERS = 3

_LONGEST = 500
"""Lines that a method of this name may have; another of the name begins later."""

_FOR_ALL = ("__torch_dispatch__", "__torch_function__")
"""What serves all operators: of these a line is to blame, since each of them runs in all that is tried."""

_WEAK = 0.5
"""What is less suspicious runs in too much that is right: it is no cause beside another one."""


@dataclass(frozen=True)
class Cause:
    """What is to blame.

    Attributes:
        methods: What the author has written; several where they do not agree with each other; none where it is not
            known.
        findings: What is broken by it, the plainest first.
        helpers: What the author has written, too, that the methods call, where these write or read values.
    """

    methods: tuple[Method, ...]
    findings: tuple[Finding, ...]
    helpers: tuple[Method, ...] = ()


def causes_of(trial: Trial, findings: Sequence[Finding]) -> list[Cause]:
    """Returns what is to blame for what is broken, in the order of importance.

    Args:
        trial: Of the class.
        findings: All of them. Clauses that are quick are tried once more, to see what runs in them.
    """
    broken = [finding for finding in findings if finding.is_broken]
    if not broken:
        return []
    runs, kept, calls = _runs(trial, findings)
    known = set(methods_of(trial.cls).values())
    left, found = list(broken), list[Cause]()
    about = {finding: _about(finding, trial.cls, known, runs.get(finding, []), kept, calls) for finding in broken}
    # A wrong round trip is seen wherever a tensor is made of its parts.
    for finding in sorted(broken, key=lambda each: (each.clause.number != 0, each.clause.number not in _ROUND_TRIP)):
        if about[finding] and finding in left:
            mine = [each for each in left if about[each][:1] == about[finding][:1]]
            left = [each for each in left if each not in mine]
            found.append(Cause(min((about[each] for each in mine), key=len), tuple(mine)))
    for place, cause in enumerate(found):
        ran = [each for each in left if _is_explained(cause, each, runs.get(each, []), _all(runs, left), kept)]
        left = [each for each in left if each not in ran]
        found[place] = Cause(cause.methods, (*cause.findings, *ran))
    aside = _raised_without(left, runs)
    left = [each for each in left if each not in aside]
    while left:
        ranked = suspects([*_all(runs, left), *kept])
        strong = [(method, much) for method, much in ranked if much >= _WEAK or not found]
        mine = [each for each in left if strong and any(_ran_in(strong[0][0], run) for run in runs.get(each, []))]
        if not mine:
            break
        left = [each for each in left if each not in mine]
        found.append(Cause((strong[0][0], *_of_outside(mine[0], known, strong[0][0])), tuple(mine)))
    if found:  # what is compiled is not traced: it repeats what is wrong in eager mode
        unseen = [each for each in left if not runs.get(each)]
        left = [each for each in left if each not in unseen]
        found[0] = Cause(found[0].methods, (*found[0].findings, *unseen))
    by_rule = [(each, _rule_of(runs.get(each, []), kept)) for each in left] + [(each, None) for each in aside]
    return [*(_with_helpers(cause, calls) for cause in found), *_alike(by_rule)]


def _with_helpers(cause: Cause, calls: Collection[tuple[Method, Method]]) -> Cause:
    """Returns the cause with what its methods call, if it is about what is written and read."""
    if cause.findings[0].clause.number not in (0, 2):
        return cause
    called = {callee for caller, callee in calls if caller in cause.methods and callee not in cause.methods}
    helpers = sorted((each for each in called if each.name not in (*PROTOCOL, *READINGS)), key=str)
    return replace(cause, helpers=tuple(helpers)) if len(helpers) <= _MOST_HELPERS else cause


def _runs(
    trial: Trial, findings: Sequence[Finding]
) -> tuple[dict[Finding, list[Run]], list[Run], set[tuple[Method, Method]]]:
    """Returns the broken runs of each finding, the runs of what was right, and who calls whom."""
    trial.watch = watch = Watch(trial.cls)
    broken: dict[Finding, list[Run]] = {}
    for finding in findings:
        if finding.clause.is_quick and finding.verdict in ("kept", "broken", "raises"):
            before = len(watch.runs)
            settled(_checked(watch, finding.clause, trial))
            if finding.is_broken:
                broken[finding] = [run for run in watch.runs[before:] if run.is_broken]
    trial.watch = None
    return broken, [run for run in watch.runs if not run.is_broken], watch.calls


def _checked(watch: Watch, clause: Clause, trial: Trial) -> Callable[[], None]:
    """Returns a check that raises an `AssertionError` for all that is a fault of the clause."""

    def check() -> None:
        verdict, why = settled(lambda: clause.check(trial), trial.cls)
        if is_fault(clause, verdict):
            raise BrokenClause(why)
        if verdict != "kept":
            raise DoesNotApply(why)

    return lambda: watch.check(check)


def _about(
    finding: Finding,
    cls: type,
    known: Collection[Method],
    mine: Sequence[Run],
    kept: Sequence[Run],
    calls: Collection[tuple[Method, Method]],
) -> tuple[Method, ...]:
    """Returns the methods that a finding is about, if it is about any: by what it says, or by its clause."""
    clause = finding.clause
    slips = tuple(method for method in known if _raises(method, finding.why))
    cannot_be_read = " cannot be read: " in finding.why or any(_reads(method, calls) for method in slips)
    if (
        (clause.number or clause.name in _OF_FORMS)
        and cannot_be_read
        and any(_reads(method, calls) for run in kept for method in run.methods)
    ):
        # It reads other tensors of the class: what made this one is to blame.
        if clause.number in (0, 22) and (views := _views_statement(cls)):
            return (views, *slips)
        slips = tuple(method for method in slips if not _reads(method, calls)) or _makers(finding, mine, kept)[:1]
    if slips:
        return slips
    if "a view holds copies" in finding.why or SHARES in finding.why:
        return _makers(finding, mine, kept)[:1]
    if clause.number == 23 and (writer := _named_in(clause.name, mine)):
        return (writer,)
    is_of_dtype = " after it was written, not torch." in finding.why and not _of_names(("from_plain",), known)
    if is_of_dtype or re.search(r"^to\(.* outside, not on ", finding.why):
        return _of_names(("outer_metadata", "__new__"), known)
    runs = [*mine, *kept]
    methods = _of_names(_ABOUT_BY_NAME.get(clause.name) or ABOUT.get(clause.number, ()), known)
    is_of_x = {2: " of x is ", 10: "the round trip"}.get(clause.number, "")
    if is_of_x not in finding.why:
        return ()  # the tensor is right, and what an operator makes of it is not
    if clause.number == 0 and clause.name not in _ABOUT_BY_NAME and not _of_names(("from_plain",), known):
        others = [method for method, _ in suspects(runs) if method not in methods and method.name not in _READERS]
        others.sort(key=lambda method: "aten.copy_" not in method.name)  # by which values are written
        return (*others[:1], *methods)  # what writes is a rule, or dispatch
    return methods


def _raises(method: Method, why: str) -> bool:
    """Returns whether it is said that a method raises, at any of its lines."""
    lines = range(method.line, method.line + _LONGEST)
    called = re.escape(str(method).rpartition(":")[0])
    return any(int(line) in lines for line in re.findall(rf"{called}:(\d+)\) raises ", why))


def _reads(method: Method, calls: Collection[tuple[Method, Method]]) -> bool:
    """Returns whether a method is a reading, or what a reading calls."""
    if method.name in (*READINGS, *_READERS):
        return True
    callers = {caller for caller, callee in calls if callee == method}
    return bool(callers) and method.kind != "rule" and all(caller.name in (*READINGS, *_READERS) for caller in callers)


def _makers(finding: Finding, mine: Sequence[Run], kept: Sequence[Run]) -> tuple[Method, ...]:
    """Returns what may have made a tensor in broken runs: the rule of what was called, other rules, dispatch."""
    named = _named_in(finding.clause.name, mine) or _named_in(finding.why.partition(").")[0], mine)
    ranked = [method for method, _ in suspects([*mine, *kept])]
    rules = [each for each in ranked if each.kind == "rule" and not re.search(r"_(\.|$)|clone", each.name)]
    return (*([named] if named else []), *rules, *(each for each in ranked if each.name in _FOR_ALL))


def _named_in(text: str, runs: Sequence[Run]) -> Method | None:
    """Returns the rule that ran for an operator that a text calls, as `x.mul_(2)`: for it, or for that without `_`."""
    called = [name for names in re.findall(r"(\w+)(?:\.(\w+))?\(", text) for name in names if name]
    rules = [method for run in runs for method in run.methods if method.kind == "rule"]
    for name in (*called, *(each.removesuffix("_") for each in called)):
        for rule in rules:
            if re.search(rf"aten\.{name}(\.|,|$)", rule.name):
                return rule
    return None


def _views_statement(cls: type) -> Method | None:
    """Returns the part of a class statement that says how fields follow views, if there is one."""
    declaration = Declaration.of(cls)
    if declaration is None or declaration.views is None:
        return None
    try:
        lines, line = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls) or ""
    except (OSError, TypeError):  # it has no source
        return None
    at = next((place for place, text in enumerate(lines) if "views=" in text), 0)
    return Method(VIEWS_STATEMENT, "method", file, line + at)


def _of_names(names: Sequence[str], known: Collection[Method]) -> tuple[Method, ...]:
    return tuple(m for name in names for m in sorted(known, key=str) if m.name == name and m.kind == "method")


def _of_outside(finding: Finding, known: Collection[Method], other: Method) -> tuple[Method, ...]:
    """Returns what says the metadata outside, where that is not what it should be."""
    methods = _of_names(("outer_metadata", "__new__"), known) if " outside, " in finding.why else ()
    return () if other in methods else methods[:1]


def _all(runs: dict[Finding, list[Run]], findings: Iterable[Finding]) -> list[Run]:
    return [run for finding in findings for run in runs.get(finding, [])]


def _raised_without(findings: Sequence[Finding], runs: dict[Finding, list[Run]]) -> list[Finding]:
    """Returns findings of an error that is raised, too, where nothing of the class runs but its protocol."""
    alone = {
        _what_it_says(each)
        for each in findings
        if runs.get(each) and all(method.name in PROTOCOL for run in runs[each] for method in run.methods)
    }
    return [each for each in findings if each.verdict == "raises" and _what_it_says(each) in alone]


def _rule_of(mine: Sequence[Run], kept: Sequence[Run]) -> Method | None:
    """Returns the most suspicious rule that ran in what is broken; None if none did."""
    return next((method for method, _ in suspects([*mine, *kept]) if method.kind == "rule"), None)


def _alike(findings: Iterable[tuple[Finding, Method | None]]) -> list[Cause]:
    """Returns causes of findings that are left, each with the rule that ran; of those that say the same, one."""
    found: dict[tuple[object, Method | None], list[Finding]] = {}
    for finding, rule in findings:
        found.setdefault((_what_it_says(finding), rule), []).append(finding)
    return [Cause((rule,) if rule else (), tuple(mine)) for (_, rule), mine in found.items()]


def _what_it_says(finding: Finding) -> object:
    """Returns the error that was raised, or the clause with what differed; without numbers and what was tried."""
    said = re.sub(
        r"\[[^]]*\]|\([^)]*\)|[-+.\d]*\d(e[-+]?\d+)?", "#", finding.why.splitlines()[0] if finding.why else ""
    )
    error = re.search(r"\b[A-Z]\w*(Error|Exception): .*", said)
    if error is not None:
        return error[0]
    clause = finding.clause
    return clause.number, said.rpartition(": ")[2] if said.startswith(clause.name[:3]) else said


def _ran_in(method: Method, run: Run) -> bool:
    """Returns whether a method ran; of what serves all operators, whether its suspicious line did."""
    return (method, method.suspicious) in run.lines if method.name in _FOR_ALL else method in run.methods


def _is_explained(
    cause: Cause, finding: Finding, mine: Sequence[Run], broken: Sequence[Run], kept: Sequence[Run]
) -> bool:
    """Returns whether a method of a cause ran in what is broken, and nothing that is more suspicious."""
    if not mine:
        return False
    if any(method.name in _FOR_ALL for method in cause.methods) and not any(each.suspicious for each in cause.methods):
        return _what_it_says(finding) in map(_what_it_says, cause.findings)
    ranked = dict(suspects([*broken, *kept]))
    ran = {method for run in mine for method in run.methods}
    most = max((ranked[method] for method in ran), default=0.0)
    return any(method in ran and ranked[method] >= min(most, _WEAK) for method in cause.methods)
