"""Clause 0: what is written reads back. Most operators write and read, so this comes before all other clauses.

Note [What a class can hold]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A class may round: to codes, to a pattern of zeros, to a sign. How coarse it is, it says itself: by what it makes of
values that are drawn. That is no further off than zeros would be, as it is where signs are lost. Nothing is far
coarser than that: not zeros, equal values, one sign, outliers, large or small numbers. And what was rounded once
stays: written again it is the same, and so is what the tensor held before. Thus a class that loses half of all values
is right, and one whose product is off by a hundredth is not.

Some classes hold only some values, such as a base and one bit beside each of its elements. Their author says which:
`values=` of `check_subclass` gives them in the place of all values that are drawn, and they are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.kit.declaration import Declaration
from subclass_aot.testing.contract.blame import slip_of
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.remedies import SHARES
from subclass_aot.testing.contract.trial import (
    COARSEST,
    BrokenClause,
    DoesNotApply,
    Program,
    Trial,
    distance,
    inner_of,
    require,
    writes_of_others,
    written,
)

CLAUSES = Clauses()

_COARSER = 4.0
"""So many times as coarse as on drawn values a class may be on others."""

_AS_ZEROS = 1.12
"""So far off, as a part of their length, drawn values may be that were written and read. Zeros are off by 1, values
whose signs are lost by 1.4; half of a matrix that is read for the other half by 1 on average, and what is drawn varies.
"""

_DRAWS = 8

VALUES: dict[str, Program] = {
    "zeros": torch.zeros_like,
    "equal values": lambda own: torch.full_like(own, 0.75),
    "negative equal values": lambda own: torch.full_like(own, -0.3),
    "positive values": lambda own: _drawn(own).abs(),
    "negative values": lambda own: -_drawn(own).abs(),
    "values of one size and both signs": lambda own: _drawn(own).sign(),
    "values with an outlier": lambda own: _with_outlier(own, 1.0),
    "values with a negative outlier": lambda own: _with_outlier(own, -1.0),
    "values that are 1000 times larger": lambda own: _drawn(own) * min(1e3, torch.finfo(own.dtype).max / 16),
    "values that are 1000 times smaller": lambda own: _drawn(own) * 1e-3,
    "rows of zeros beside others": lambda own: torch.cat([own[:1] * 0, _drawn(own)[1:]]) if own.dim() else own * 0,
}
"""Values to write, of the size and dtype of what the tensor holds."""

_DRAWN: dict[str, Program] = {
    "drawn values": lambda own: _drawn(own),
    "their cosines": lambda own: _drawn(own).cos(),
    "their squares": lambda own: _drawn(own).square(),
}


def _law(name: str) -> Callable[[Callable[[Trial, torch.Tensor], None]], object]:
    """Makes a function of a trial and of its values, which are real numbers, a clause."""

    def add(check: Callable[[Trial, torch.Tensor], None]) -> object:
        @CLAUSES.add(0, "S", name, "what is written into a tensor reads back, up to the rounding of the class")
        def _(trial: Trial) -> None:
            if not trial.is_real or not trial.readings:
                raise DoesNotApply("only real floating-point tensors with a reading are written with values")
            tensor, own = trial.make(), trial.values()[0]
            if (tensor.shape, tensor.dtype) != (own.shape, own.dtype):
                raise DoesNotApply("what it means has another size or dtype, as clause 2 says")
            check(trial, own)

        return check

    return add


@CLAUSES.add(0, "S", "reading", "a reading leaves the tensor as it is, and gives the same the second time")
def _reading(trial: Trial) -> None:
    for place, reading in enumerate(trial.readings):
        for what, tensor in trial.forms():
            before = {name: _state(part) for name, part in _tensors(tensor)}
            one = _read(trial, reading, tensor, what)
            first = one.detach().clone()
            for name, part in _tensors(tensor):
                version, held = before[name]
                require(_torch.autograd.version_of(part) == version, f"reading {place} of {what} writes into {name}")
                require(_same(part, held), f"reading {place} of {what} changes {name}")
            again = reading(tensor)
            require(_same(first, again.detach()), f"reading {place} of {what} gives other values the second time")


def _read(trial: Trial, reading: Program, tensor: torch.Tensor, what: str) -> torch.Tensor:
    """Reads a tensor. What the class runs into is said with the form of it."""
    try:
        return reading(tensor)  # type: ignore[no-any-return]
    except Exception as error:
        pass_on_interruption(error)
        slip = slip_of(error, trial.cls)
        if slip is None:
            raise
        raise BrokenClause(f"{slip.removesuffix('.')}, of {what}, which is {list(tensor.shape)}") from None


@CLAUSES.add(0, "S", "reading after a write", "what is read after a write is what was written")
def _reading_after_write(trial: Trial) -> None:
    """Raises for a reading that is kept, and shows what was there before."""
    if not trial.readings:
        raise DoesNotApply("there is no reading: give readings=")
    for place, reading in enumerate(trial.readings):
        tensor, fresh = trial.make(), trial.make()
        reading(tensor)
        for one, other in zip(_floats(tensor), _floats(fresh), strict=True):
            one.mul_(2)
            other.mul_(2)
        require(_same(reading(tensor), reading(fresh)), f"reading {place} gives what was there before a write")


@_law("from_plain")
def _from_plain(trial: Trial, own: torch.Tensor) -> None:
    tensor = trial.make()
    if not hasattr(tensor, "from_plain"):
        raise DoesNotApply("there is none")
    try:
        made = written(tensor, own)
    except NotImplementedError:
        raise
    except Exception as error:
        pass_on_interruption(error)
        raise BrokenClause(f"from_plain raises, of what the tensor itself means: {first_line(error)}") from None
    require(type(made) is trial.cls, f"from_plain gives a {type(made).__name__}")
    mine = dict(_tensors(tensor))
    for name, part in _tensors(made):
        like = mine.get(name, part)
        require(part.dtype == like.dtype, f"from_plain gives {name} of {part.dtype}, not {like.dtype}, as x has it")


@_law("own values")
def _own(trial: Trial, own: torch.Tensor) -> None:
    if len(trial.readings) > 1:
        raise DoesNotApply("it means several tensors, and values are written into all")
    for what, view in trial.forms():
        (values,) = trial.read(view)
        try:
            most = min(2 * _coarseness(trial, view, values), COARSEST)
            made = written(view, values)
        except BrokenClause:
            raise
        except Exception as error:
            pass_on_interruption(error)
            slip = slip_of(error, trial.cls)
            if slip is None:
                raise
            none = "" if values.numel() else " and has no elements"
            raise BrokenClause(
                f"{slip.removesuffix('.')}, of values like {what}, which is {list(values.shape)}{none}"
            ) from None
        _agrees(trial, made, values, f"what {what} holds", most)


@_law("drawn values")
def _no_further_off_than_zeros(trial: Trial, own: torch.Tensor) -> None:
    """Compares the mean of several draws: of few values one may be that the class holds badly."""
    if len(trial.readings) > 1:
        raise DoesNotApply("it means several tensors, and values are written into all")
    off = length = 0.0
    for seed in range(_DRAWS):
        like = trial.make()
        values = trial.held(like, _drawn(own, seed))
        made = trial.read_result(written(like, values), "a tensor that drawn values were written into")[0]
        if made.shape != values.shape:
            raise DoesNotApply("its size is another, as other clauses say")
        off += float((made.double() - values.double()).square().sum())
        length += float(values.double().square().sum())
    far = (off / length) ** 0.5 if length else 0.0
    require(
        far <= _AS_ZEROS,
        f"drawn values, written and read, are off by {far:.3g} of their length, and zeros in their place by 1: "
        "as where signs are lost, or other elements are read",
    )


@_law("twice")
def _twice(trial: Trial, own: torch.Tensor) -> None:
    coarse = _coarseness(trial, trial.make(), own)  # not exact: a zero point may lie between two codes
    for what, draw in (*_DRAWN.items(), *VALUES.items()):
        like = trial.make()
        once = trial.read(written(like, trial.held(like, draw(own))))[0]
        _agrees(trial, written(trial.make(), once), once, f"what was made of {what}", _COARSER * coarse)


def _of(name: str, draw: Program) -> None:
    @_law(name)
    def _(trial: Trial, own: torch.Tensor) -> None:
        coarse = _coarseness(trial, trial.make(), own)
        like = trial.make()
        values = trial.held(like, draw(own))
        _agrees(trial, written(like, values), values, name, _COARSER * coarse)


for _name, _draw in VALUES.items():
    _of(_name, _draw)


@_law("of another")
def _of_another(trial: Trial, own: torch.Tensor) -> None:
    tensor, other = trial.make(), trial.make()
    values = trial.held(tensor, _drawn(own))
    for part in _values_of(other):
        part.mul_(3)
    one = written(tensor, values)
    two = written(other, values)
    _agrees(trial, two, trial.read(one)[0], "values that a tensor with other values takes", 0.0)
    before = trial.read(tensor)
    for part in _values_of(one):
        part.mul_(3)
    trial.agrees(tensor, before, "x, after a write into what from_plain gave, with memory of x,")
    if not hasattr(tensor, "from_plain"):
        return  # it was a clone, of which other clauses say more
    for name, write in writes_of_others(trial).items():
        tensor = trial.make()
        with torch.no_grad():
            try:
                write(written(tensor, values))
            except Exception as error:  # which writes a class offers is its own affair
                pass_on_interruption(error)
                continue
        trial.agrees(tensor, before, f"x, after a write into what from_plain gave, {SHARES} x in {name},")


def _coarseness(trial: Trial, like: torch.Tensor, own: torch.Tensor) -> float:
    """Returns by how much drawn values are rounded at least, as a part of the largest.

    See Note [What a class can hold].
    """
    if trial.is_told:
        return 0.0
    drawn = [draw(own) for draw in _DRAWN.values()]
    what = "a tensor that drawn values were written into"
    off = [distance(trial.read_result(written(like, values), what)[0], values) for values in drawn]
    require(max(off) < float("inf"), "drawn values, written and read, are no numbers")
    return min(off)


def _agrees(trial: Trial, made: torch.Tensor, want: torch.Tensor, what: str, tolerance: float) -> None:
    require(made.shape == want.shape, f"{what}: size {list(made.shape)} after it was written, not {list(want.shape)}")
    require(made.dtype == want.dtype, f"{what}: {made.dtype} after it was written, not {want.dtype}")
    trial.agrees(made, [want for _ in trial.readings], f"{what}, written and read,", tolerance)


def _tensors(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    for name, part in inner_of(tensor).items():
        if isinstance(part, torch.Tensor):
            yield name, part


def _floats(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Returns the inner tensors that can be multiplied by numbers, which those of one byte cannot."""
    tensors = [part for _, part in _tensors(tensor)]
    return [part for part in tensors if type(part) is torch.Tensor and part.is_floating_point() and part.itemsize > 1]


def _values_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Returns the inner tensors that can be multiplied by numbers and say nothing of where values are."""
    declaration = Declaration.of(type(tensor))
    structure = {name for name, part in _tensors(tensor) if declaration is not None and declaration.is_structure(name)}
    kept = {id(part) for name, part in _tensors(tensor) if name in structure}
    return [part for part in _floats(tensor) if id(part) not in kept]


def _state(part: torch.Tensor) -> tuple[int, torch.Tensor]:
    return _torch.autograd.version_of(part), part.detach().clone()


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if type(one) is not torch.Tensor or type(other) is not torch.Tensor:
        return True  # a wrapper in a wrapper has a contract of its own
    return one.shape == other.shape and distance(one, other) == 0


def _drawn(own: torch.Tensor, seed: int = 1) -> torch.Tensor:
    """Returns normal values, the same each time for a seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(own.shape, generator=generator).to(own)


def _with_outlier(own: torch.Tensor, sign: float) -> torch.Tensor:
    values = _drawn(own) / 8
    values[(0,) * values.dim()] = sign * 8
    return values
