"""Clause 27 once more: operators in all their arguments, in calls that are drawn from their schemas.

Note [Drawn calls]
~~~~~~~~~~~~~~~~~~
What a rule forgets is most often an argument: `rounding_mode`, `dim`, `alpha`, or that the wrapper may be the second.
A schema names the arguments and their types, so each gets a few values of its type, the tensor of the class among
them. Dense tensors say which calls make sense: what they refuse is not tried. First come calls that differ in their
tensors, then those that differ from the first of them in few other arguments, so that a report names what matters.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.bytecode import names_in
from subclass_aot.base.operators import OperatorSet
from subclass_aot.kit.declaration import Declaration
from subclass_aot.testing.contract.blame import functions_of
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.remedies import SHARES
from subclass_aot.testing.contract.trial import (
    BrokenClause,
    DoesNotApply,
    Program,
    Trial,
    inner_of,
    require,
    several,
    storages,
    writes_of_others,
)

_TRIED = 250
"""Calls of one operator that are tried at once on dense tensors."""

_TENSORS_TAKEN = 7
"""Calls of one operator with other tensors that are tried on the class."""

_OTHERS_TAKEN = 8
"""Calls with other numbers."""

_UNTAGGED = frozenset(
    "_foreach_add _foreach_addcdiv _foreach_addcmul _foreach_div _foreach_lerp _foreach_mul _foreach_norm "
    "_foreach_sqrt _foreach_sub addmv linalg_vector_norm logsumexp mv norm std stack t transpose tril triu".split()
)
"""Packets without a tag that layers and optimizers use."""

_LEFT_OUT = frozenset(
    "_fft_c2r _local_scalar_dense as_strided copy_ empty_like native_dropout resize_ set_ _embedding_bag "
    "native_group_norm _native_batch_norm_legit _native_batch_norm_legit_no_training float_power float_power_".split()
)
"""Those whose values nobody promises, that other clauses try with more care, that believe their arguments about sizes,
or compute in another dtype, in which a code times its scale is not rounded."""


_PLACES = ("layout", "device", "pin_memory", "memory_format")
"""Arguments that no call is drawn with."""

_FORGOTTEN = ("min", "max", "dim", "keepdim")
"""Arguments that are no keywords, and are forgotten as often."""

_SHOWN = 5
"""Operators that a report names, of those that are wrong."""

CLAUSES = Clauses(are_drawn=False)


class _Value(NamedTuple):
    """A value for an argument: as text, and as it is made of the tensor that is tried."""

    text: str
    of: Program


class Call(NamedTuple):
    """A call as a program of the tensor that is tried; what the operator writes is a clone of that."""

    text: str
    program: Program
    writes: bool


@CLAUSES.add(27, "S", "drawn calls", "operators mean what they mean on the dense tensor in all their arguments")
def _drawn_calls(trial: Trial) -> None:
    values = trial.values()
    if not values:
        raise DoesNotApply("there is no reading: give readings=")
    wrong: list[str] = []
    with torch.no_grad():
        ruled = list(_with_a_rule(trial.cls))
        quick = (
            [*_of_packets(ruled), *(func for each in ruled for func in examples_of(each, values[0]))]
            if trial.is_quick
            else []
        )
        for func in dict.fromkeys(quick) if trial.is_quick else drawn_operators(ruled):
            calls = drawn_calls(func, values[0])
            for call in calls:
                if call.writes and trial.rounding and not _is_finite(call.program(values[0])):
                    continue  # integers have no code for it
                results = _Results(trial.cls)
                try:
                    trial.commutes_or_refuses(call.text, functools.partial(results.of, call.program))
                    if results.shared and not call.writes:
                        trial.part(functools.partial(_leaves_its_arguments, trial, call, values[0], results.shared))
                except BrokenClause as error:
                    wrong.append(str(error))
                    break
    more = f"\nand {len(wrong) - _SHOWN} more operators" if len(wrong) > _SHOWN else ""
    require(not wrong, "\n".join(wrong[:_SHOWN]) + more)


class _Results:
    """Notes what the results of a program have in common with its argument.

    Attributes:
        shared: The names of inner tensors of the results that are memory of the argument.
    """

    def __init__(self, cls: type) -> None:
        self._cls = cls
        self.shared: list[str] = []

    def of(self, program: Program, x: torch.Tensor) -> Any:
        """Returns what the program gives."""
        results = program(x)
        if type(x) is self._cls:
            mine = storages(x)
            found = [inner_of(each).items() for each in several(results) if type(each) is self._cls]
            parts = (part for each in found for part in each)
            self.shared = [name for name, part in parts if isinstance(part, torch.Tensor) and storages(part) & mine]
        return results


def _leaves_its_arguments(trial: Trial, call: Call, values: torch.Tensor, shared: Sequence[str]) -> None:
    """Raises `BrokenClause` if a write into what an operator gives reaches what it was given, unless it is a view.

    Which memory the two have in common shows what to write: all that is there, and each inner tensor by itself. What
    no write of the class reaches may be shared, such as offsets that are never written.
    """
    if any(storages(each) & storages(values) for each in several(call.program(values))):
        return
    others = writes_of_others(trial).items()
    writes: dict[str, Program] = {"mul_(3)": lambda result: result.mul_(3)}
    writes |= {f"copy_(x with another {name})": write for name, write in others if name in shared}
    for what, write in writes.items():
        tensor = trial.make()
        try:
            results = [each for each in several(call.program(tensor)) if type(each) is trial.cls]
            write(next(each for each in results if storages(each) & storages(tensor)))
        except Exception as error:  # which operators a class offers is its own affair
            pass_on_interruption(error)
            continue
        trial.agrees(tensor, trial.values(), f"x after {call.text}.{what}, {SHARES} {shared},")


def _is_finite(results: object) -> bool:
    return all(bool(result.isfinite().all()) for result in several(results))


def _with_a_rule(cls: type) -> Iterator[object]:
    """Yields the operators that a class has rules for; those that a class by hand names."""
    for each in cls.__mro__:
        yield from getattr(vars(each).get("__wrapper_declaration__"), "rules", ())
    if Declaration.of(cls) is None:
        yield from operators_named(cls)


def operators_named(cls: type) -> Iterator[object]:
    """Yields the operators that a class by hand names: in its functions, and in tables of it or that these name."""
    for function in functions_of(cls):
        names = dict.fromkeys(names_in(function.__code__))
        for name in names:
            value = function.__globals__.get(name)
            yield from _operators_in(value)
            if value is torch.ops.aten or value is torch.ops or value is torch:
                for packet in names:
                    found = getattr(torch.ops.aten, packet, None) if not packet.startswith("__") else None
                    yield from () if found is None or not hasattr(found, "overloads") else [found]
    for each in cls.__mro__:
        for value in vars(each).values() if each is not torch.Tensor else ():
            yield from _operators_in(value)


def _operators_in(value: object) -> Iterator[object]:
    """Yields the operators that are in a table: the keys of a dict, the elements of a list, tuple or set."""
    if isinstance(value, dict | list | tuple | set | frozenset):
        yield from (key for key in value if _torch.operators.is_overload(key))


def drawn_operators(more: Iterable[object]) -> list[_torch.operators.Operator]:
    """Returns the operators of aten of which calls are drawn: those that compute, and those of layers and optimizers.

    Args:
        more: Operators, and packets of them, that are drawn, too.
    """
    known = {*_of_packets(more)}
    return [func for func in _aten() if _is_chosen(func) or func in known]


def examples_of(rule: object, example: torch.Tensor) -> list[_torch.operators.Operator]:
    """Returns a few operators of a set: the plainest, and for each keyword argument one that has it.

    What a rule for a set forgets is such an argument, as `alpha` of `add` and `approximate` of `gelu`.

    Args:
        rule: What a class has a rule for. Of what is no set, there are none.
        example: A dense tensor like the one that is tried: operators of which it has calls.
    """
    if not isinstance(rule, OperatorSet):
        return []
    found: dict[str, _torch.operators.Operator] = {}
    for func in sorted((func for func in _aten() if func in rule), key=_plainest_first):
        arguments = _torch.operators.schema_of(func).arguments
        named = [a.name for a in arguments if a.name in _FORGOTTEN or a.kwarg_only and a.name not in _PLACES]
        for name in named or [f"{len(arguments)} arguments"] * (len(arguments) <= 2):
            if name not in found and drawn_calls(func, example):
                found[name] = func
    return list(dict.fromkeys(found.values()))


def _plainest_first(func: _torch.operators.Operator) -> tuple[bool, bool, bool, bool, int, str]:
    name = str(func)
    is_known = torch.Tag.core in func.tags
    count = len(_torch.operators.schema_of(func).arguments)
    return _packet(name).startswith("_"), not is_known, not name.endswith(".default"), "Scalar" in name, count, name


def _of_packets(operators: Iterable[object]) -> list[_torch.operators.Operator]:
    """Returns all overloads of aten of the packets of operators."""
    packets = {_packet(str(each)) for each in operators}
    return [func for func in _aten() if _packet(str(func)) in packets]


def drawn_calls(func: _torch.operators.Operator, example: torch.Tensor) -> list[Call]:
    """Calls that dense tensors accept, the plainest first; in each the tensor that is tried is an argument.

    Args:
        func: The operator.
        example: A dense tensor like the one that is tried.
    """
    key = (func, example.shape, example.stride(), example.dtype, example.device)
    if key not in _drawn:
        _drawn[key] = _draw(func, example)
    return _drawn[key]


_drawn: dict[object, list[Call]] = {}
"""What was drawn: another class of the same size takes as many calls, and to find them takes most of the time."""


def _draw(func: _torch.operators.Operator, example: torch.Tensor) -> list[Call]:
    arguments = _torch.operators.schema_of(func).arguments
    values = [_values(argument, is_first=place == 0) for place, argument in enumerate(arguments)]

    def accepted(varied: Collection[int], base: Sequence[int], most: int) -> list[tuple[tuple[int, ...], Call]]:
        """Returns the choices, nearest first, that take the base but for what is varied."""
        found: list[tuple[tuple[int, ...], Call]] = []
        counts = [len(each) if place in varied else min(len(each), 1) for place, each in enumerate(values)]
        for choice in itertools.islice(_nearest_first(counts), _TRIED):
            chosen = tuple(choice[i] if i in varied else base[i] for i in range(len(values)))
            call = _call(func, [each[place] for each, place in zip(values, chosen, strict=True)])
            if call is not None and _is_accepted(call, example):
                found.append((chosen, call))
                if len(found) == most:
                    break
        return found

    plainest = [0] * len(values)
    tensors = {place for place, argument in enumerate(arguments) if "Tensor" in str(argument.type)}
    others = set(range(len(values))) - tensors
    bases = accepted(tensors, plainest, _TENSORS_TAKEN) or accepted(tensors | others, plainest, _TENSORS_TAKEN)
    calls = [call for base, _ in bases[:1] for _, call in accepted(others, base, _OTHERS_TAKEN)][1:]
    for base, _ in bases[1:]:  # each argument once with the others of these tensors, too
        calls += [call for _, call in accepted(others, base, 1 + len(others))][1:]
    return [*(call for _, call in bases), *calls]


@functools.cache
def _aten() -> list[_torch.operators.Operator]:
    """Returns the operators of aten that say by their arguments alone what they give."""
    return [
        func
        for func in _torch.operators.registered_operators()
        if str(func).startswith("aten.")
        and torch.Tag.nondeterministic_seeded not in func.tags
        and not any(argument.is_out for argument in _torch.operators.schema_of(func).arguments)
        and not _packet(str(func)).endswith(("_backward", "_backward_data"))  # these believe it, too
        and _packet(str(func)) not in _LEFT_OUT
    ]


def _packet(name: str) -> str:
    """Returns the name of the packet of an operator.

    >>> _packet("aten.add.Tensor"), _packet("aten.add")
    ('add', 'add')
    """
    return [*name.split("."), ""][1]


def _is_chosen(func: _torch.operators.Operator) -> bool:
    computes = (
        torch.Tag.core in func.tags or torch.Tag.pointwise in func.tags or _torch.operators.has_reduction_tag(func)
    )
    return computes or _packet(str(func)).removesuffix("_") in _UNTAGGED


def _nearest_first(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yields choices of one of each, those first that take the first of most.

    >>> list(_nearest_first([2, 2]))
    [(0, 0), (1, 0), (0, 1), (1, 1)]
    >>> list(_nearest_first([2, 0]))
    []
    """
    if not all(counts):
        return
    for others in range(len(counts) + 1):
        for places in itertools.combinations(range(len(counts)), others):
            for choice in itertools.product(*(range(1, counts[place]) for place in places)):
                chosen = dict(zip(places, choice, strict=True))
                yield tuple(chosen.get(place, 0) for place in range(len(counts)))


def _call(func: _torch.operators.Operator, values: Sequence[_Value]) -> Call | None:
    """Returns a call with these arguments; None if none is the tensor that is tried."""
    arguments = _torch.operators.schema_of(func).arguments
    if not any("x" in value.text and "Tensor" in str(a.type) for value, a in zip(values, arguments, strict=True)):
        return None
    written = [a.alias_info is not None and a.alias_info.is_write for a in arguments]

    def program(x: torch.Tensor) -> Any:
        given = [_cloned(v.of(x)) if w else v.of(x) for v, w in zip(values, written, strict=True)]
        places = [place for place, argument in enumerate(arguments) if not argument.kwarg_only]
        named = {a.name: given[i] for i, a in enumerate(arguments) if a.kwarg_only}
        result = func(*[given[i] for i in places], **named)
        return given[0] if any(written) else result

    told = ", ".join(f"{a.name}={v.text}" if a.kwarg_only else v.text for a, v in zip(arguments, values, strict=True))
    return Call(f"{func}({told})", program, any(written))


def _cloned(given: Any) -> Any:
    return [each.clone() for each in given] if isinstance(given, list) else given.clone()


def _is_accepted(call: Call, example: torch.Tensor) -> bool:
    """Returns whether dense tensors do it, and it gives tensors."""
    try:
        results = several(call.program(example))
    except Exception as error:
        pass_on_interruption(error)
        return False
    return bool(results) and all(isinstance(result, torch.Tensor) for result in results)


def _values(argument: _torch.operators.SchemaArgument, is_first: bool) -> list[_Value]:
    """Returns the values that an argument may have, the plainest first: its default, if it has one."""
    kind, name = str(argument.type), argument.name
    optional = kind.startswith("Optional[")
    kind = kind.removeprefix("Optional[").removesuffix("]") if optional else kind
    found = _of_kind(kind, name)
    if kind == "Tensor" and not is_first:  # of two that are the same, much is the same: `x / x` is 1 however rounded
        found = [*found[1:2], *found[:1], *found[2:], *(_OPERANDS if found is _TENSORS else [])]
    if argument.has_default_value():
        default = argument.default_value
        found = [_plain(default), *(each for each in found if each.text != repr(default))]
    elif optional:
        found = [_plain(None), *found]
    return found


def _of_kind(kind: str, name: str) -> list[_Value]:
    is_dim = name.startswith("dim")
    if kind == "Tensor":
        return _INDICES if name in ("index", "indices") else _MASKS if name in ("mask", "condition") else _TENSORS
    if kind == "List[Tensor]":
        return _LISTS
    if kind == "List[Optional[Tensor]]":
        return _LISTS_OF_INDICES
    if kind == "List[int]":
        return [*map(_plain, _DIMS if is_dim else _SIZES), *([] if is_dim else _SIZES_OF_X)]
    if name == "dtype":
        return [_Value("another dtype", lambda x: torch.float32 if x.dtype is torch.float64 else torch.float64)]
    if name in ("layout", "device", "pin_memory", "memory_format"):
        return []
    return [_plain(each) for each in (_INTS_OF_DIM if kind == "int" and is_dim else _OF_TYPE.get(kind, []))]


def _plain(value: object) -> _Value:
    return _Value(repr(value), lambda x: value)


def _dense(x: torch.Tensor, *size: int) -> torch.Tensor:
    """Returns values from 0.5 to 1.5, of which no two are the same; of a size that may be that of `x`."""
    numel = math.prod(size)
    return torch.linspace(0.5, 1.5, numel, device=x.device).cos().add(0.5).to(x.dtype).reshape(size)


_TENSORS = [
    _Value("x", lambda x: x),
    _Value("dense", lambda x: _dense(x, *x.shape)),
    _Value("x.mT", lambda x: x.t() if x.dim() == 2 else x.mT),
    _Value("dense.mT", lambda x: _dense(x, *x.mT.shape)),
    _Value("row", lambda x: _dense(x, x.shape[-1])),
    _Value("number", lambda x: _dense(x)),
]
_OPERANDS = [
    _Value("2.5", lambda x: 2.5),
    _Value("dense of one dim more", lambda x: _dense(x, 2, *x.shape)),
]
_MASKS = [_Value("dense > 0.8", lambda x: _dense(x, *x.shape) > 0.8), _Value("x > 0", lambda x: x > 0)]
_INDICES = [
    _Value("zeros(2)", lambda x: torch.zeros(2, dtype=torch.int64, device=x.device)),
    _Value("zeros(x.shape)", lambda x: torch.zeros(x.shape, dtype=torch.int64, device=x.device)),
]
_LISTS = [
    _Value("[x, x]", lambda x: [x, x]),
    _Value("[x, dense]", lambda x: [x, _dense(x, *x.shape)]),
    _Value("[dense, x]", lambda x: [_dense(x, *x.shape), x]),
]
_LISTS_OF_INDICES = [
    _Value("[zeros(2)]", lambda x: [torch.zeros(2, dtype=torch.int64, device=x.device)]),
    _Value("[dense > 0.8]", lambda x: [_dense(x, *x.shape) > 0.8]),
    _Value("[None, zeros(2)]", lambda x: [None, torch.zeros(2, dtype=torch.int64, device=x.device)]),
]
_SIZES_OF_X = [_Value("x.shape", lambda x: list(x.shape)), _Value("x.mT.shape", lambda x: list(x.mT.shape))]
_SIZES: list[list[int]] = [[1], [2], [1, 1], [2, 2], [0, 0], [1, 0]]
_DIMS: list[list[int]] = [[0], [-1], [0, 1], [1, 0]]
_INTS_OF_DIM = [0, -1, 1]
_OF_TYPE: dict[str, list[Any]] = {
    "int": [1, 2, 0, -1],
    "number": [2, 0.5, -1.5],
    "float": [0.5, 2.0],
    "bool": [False, True],
    "str": ["floor", "trunc", "none", "tanh", "sum", "amax", "linear"],
    "List[number]": [[2, 0.5], [0.5, -1.5]],
}
