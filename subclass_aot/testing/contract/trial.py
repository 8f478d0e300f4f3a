"""The trial of a clause: tensors of the class, and what they mean.

Note [The law]
~~~~~~~~~~~~~~
A reading is a function from a tensor of the class to a dense one: what the tensor means. Every operator commutes with
every reading: what the operator gives, read, is what the operator gives for the tensor that was read. Dense tensors
are the oracle, so that nothing has to be known of the class. What dense tensors do not do is not tried on it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.compare import dense_leaves
from subclass_aot.testing.contract.blame import Watch, slip_of

Make = Callable[..., torch.Tensor]
Values = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of a tensor of the class, and of values that were drawn: values that the class holds."""

Reading = Callable[[torch.Tensor], torch.Tensor]
Program = Callable[[torch.Tensor], Any]

READINGS = ("to_plain", "dequantize", "full_tensor", "get_original_weight")
COARSEST = 0.1


FORMS: dict[str, Program] = {
    "x": lambda x: x,
    "x.transpose(0, -1)": lambda x: x.t() if x.dim() == 2 else x.transpose(0, -1),
    "x[:1]": lambda x: x[:1],
    "x[1:]": lambda x: x[1:],
    "x[::2]": lambda x: x[::2],
    "x[..., ::2]": lambda x: x[..., ::2],
    "x[:0]": lambda x: x[:0],
    "x.select(0, 1)": lambda x: x.select(0, 1),
    "x with one element": lambda x: x[(0,) * x.dim()],
    "x.unsqueeze(0).expand(2, ...)": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "x.to(bfloat16)": lambda x: x.to(torch.bfloat16),
    "x.to(float64)": lambda x: x.to(torch.float64),
    "x.clone()": lambda x: x.clone(),
}
"""Tensors of the class in other sizes, strides and dtypes."""


class BrokenClause(AssertionError):
    """The class does something else than it owes, and says nothing."""


class DoesNotApply(Exception):
    """Nothing is owed here by a class of this kind."""


def require(condition: object, message: str) -> None:
    """Raises `BrokenClause` unless the condition holds."""
    if not condition:
        raise BrokenClause(message)


def inner_of(tensor: torch.Tensor) -> dict[str, Any]:
    """Returns the inner tensors by name, in flatten order; opaque values, too."""
    return {name: getattr(tensor, name) for name in flattened(tensor)[0]}


def flattened(tensor: torch.Tensor) -> tuple[list[str], Any]:
    """Returns the names of the inner tensors and the context."""
    names, context = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    return list(names), context


def unflattened(
    like: torch.Tensor,
    inner: Mapping[str, object],
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
) -> Any:
    """Returns a tensor of the class and context of `like` that holds `inner`; its size and stride if none are given."""
    size = like.size() if size is None else torch.Size(size)
    stride = like.stride() if stride is None else tuple(stride)
    return type(like).__tensor_unflatten__(dict(inner), flattened(like)[1], size, stride)  # type: ignore[attr-defined]


def size_of(tensor: torch.Tensor) -> list[object]:
    """Returns the size; of a ragged dim, whose number is another one for each jagged tensor, only that it is ragged."""
    return ["ragged" if _torch.wrappers.is_nested_int(size) else size for size in tensor.shape]


def elsewhere(tensor: torch.Tensor, device: str) -> str:
    """Says which inner tensor, at any depth, is not on a kind of device; "" if all are, but for those without elements.

    Args:
        tensor: The tensor, which may be dense.
        device: The kind, as `"meta"`.
    """
    if tensor.device.type != device:
        return f"is on {tensor.device}"
    if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        return ""
    for name, part in inner_of(tensor).items():
        if isinstance(part, torch.Tensor) and part.numel() and (found := elsewhere(part, device)):
            return f"{name} {found}"
    return ""


def storages(tensor: torch.Tensor) -> set[int]:
    """Returns the addresses of the memory of the dense leaves."""
    leaves = [leaf for leaf in dense_leaves(tensor) if isinstance(leaf, torch.Tensor) and leaf.numel()]
    return {leaf.untyped_storage().data_ptr() for leaf in leaves}


def another(tensor: torch.Tensor, name: str) -> torch.Tensor | None:
    """Returns a tensor like one, in which one inner tensor is another: its elements in another order, or other values.

    An order, a mask or codes are still that. None if it is the same, or if the class refuses it.

    Args:
        tensor: That it is like.
        name: Of the inner tensor.
    """
    parts = inner_of(tensor)
    part = parts[name]
    if type(part) is not torch.Tensor or not part.numel():
        return None
    other = part.flip([dim for dim in range(part.dim()) if part.shape[dim] > 1])
    if torch.equal(other, part):
        if not part.is_floating_point() and part.dtype is not torch.bool:
            return None
        other = part * 3 + 1 if part.is_floating_point() else ~part
    try:
        return unflattened(tensor, {**parts, name: other})  # type: ignore[no-any-return]
    except Exception as error:  # offsets, for example, that are not offsets any more
        pass_on_interruption(error)
        return None


class Trial:
    """The arguments of a clause. See Note [The law].

    Args:
        make: Gives a new tensor, the same values each time.
        readings: What the tensor means. None: the first method of the class that gives a dense tensor; else each inner
            tensor, if all have the size of the tensor; else nothing, and clauses that speak of values do not apply.
        is_quick: Whether clauses of many programs are to try few.
        values: Of a class that holds only some values: what is written in the place of values that were drawn.

    Raises:
        TypeError: What `make` gives is no traceable wrapper subclass.
        ValueError: `make` gives other values each time, or `values` gives no values of the size of the tensor.
    """

    def __init__(
        self,
        make: Make,
        readings: Sequence[Reading] | None = None,
        is_quick: bool = False,
        values: Values | None = None,
    ) -> None:
        self._values = values
        self.is_quick = is_quick
        self.source = (make, readings)
        self._asked_for: dict[tuple[tuple[str, object], ...], Trial | None] = {}
        self.watch: Watch | None = None
        tensor = self.make()
        if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
            raise TypeError(
                f"make() gives a {type(tensor).__name__}, which is no traceable wrapper subclass: a subclass of "
                "torch.Tensor with __tensor_flatten__ and __tensor_unflatten__"
            )
        self.cls = type(tensor)
        self.readings = tuple(_default_readings(tensor) if readings is None else readings)
        self.is_real = tensor.is_floating_point()
        self._precision = _precision(tensor.dtype)
        for one, other in zip(self.read(tensor), self.read(self.make()), strict=True):
            if distance(one, other) != 0:
                raise ValueError("make() gives other values each time: give it a seed or a generator of its own")
        if self._values is not None and self.readings:  # what is wrong in it is said at once
            self.held(tensor, self.read(tensor)[0])
        self.rounding = self._rounding()

    def make(self) -> Any:
        """Returns a new tensor of the class. What runs for that is no part of what is tried."""
        _seed()
        with self._paused():
            return self.source[0]()

    def _paused(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.watch is None else self.watch.paused()

    def part(self, check: Callable[[], None]) -> None:
        """Runs a part of a clause, of which it is noted by itself which methods of the class ran."""
        if self.watch is None:
            check()
        else:
            self.watch.check(check)

    def asked_for(self, arguments: Mapping[str, object]) -> Trial | None:
        """Returns a trial of what `make` gives for some arguments; None if it refuses them."""
        key = tuple(arguments.items())
        if key not in self._asked_for:
            try:
                other = Trial(
                    functools.partial(self.source[0], **arguments), self.source[1], self.is_quick, self._values
                )
                other.watch = self.watch
            except Exception as error:
                pass_on_interruption(error)
                self._asked_for[key] = None
            else:
                self._asked_for[key] = other
        return self._asked_for[key]

    def forms(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the tensor, and what common operators make of it, as far as the class has it."""
        for what, program in FORMS.items():
            made = self.made_by(program)
            if made is not None:
                yield what, made

    def made_by(self, program: Program, tensor: torch.Tensor | None = None) -> torch.Tensor | None:
        """Returns what a program makes of a tensor, or a new one; None if that is of another class, or is not offered.

        What is wrong in it, clauses of the operator itself say.
        """
        try:
            made = program(self.make() if tensor is None else tensor)
        except Exception as error:
            pass_on_interruption(error)
            return None
        return made if type(made) is self.cls else None

    def trials_of_forms(self) -> Iterator[tuple[str, Trial]]:
        """Yields trials of the other forms of the tensor."""
        for what, program in FORMS.items():
            try:
                with self._paused():
                    form = Trial(lambda: program(self.source[0]()), self.source[1], values=self._values)  # noqa: B023  # before the next one
            except Exception as error:
                pass_on_interruption(error)
                continue
            form.watch = self.watch
            if form.cls is self.cls and what != "x":
                yield what, form

    def parameter(self) -> Any:
        """Returns a new tensor of the class that requires grad, if its dtype can."""
        return self.make().requires_grad_(self.is_real)

    def read(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Returns what a tensor means, for each reading; a dense tensor means itself.

        The strides are those of the tensor.
        """
        with torch.no_grad():
            tensor = tensor.detach() if tensor.requires_grad else tensor
            if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
                return [tensor.clone() for _ in self.readings]
            return [_in_strides_of(tensor, reading(tensor)) for reading in self.readings]

    def agrees(self, got: torch.Tensor, want: Sequence[torch.Tensor], what: str, tolerance: float = 0.0) -> None:
        """Raises `BrokenClause` if a tensor means something else than it should.

        Args:
            got: The tensor.
            want: What it should mean, for each reading.
            what: What it is, for the message.
            tolerance: By how much values may be off, as a part of the largest, beside the rounding of their dtype.

        Raises:
            BrokenClause: Sizes or values differ.
            DoesNotApply: Nobody knows what the tensor means.
        """
        if not self.readings:
            raise DoesNotApply("there is no reading: give readings=")
        for mine, wanted in zip(self.read_result(got, what), want, strict=True):
            require(
                mine.shape == wanted.shape, f"{what} means a tensor of {list(mine.shape)}, not {list(wanted.shape)}"
            )
            off = distance(mine, wanted)
            least = max(self._precision, _precision(mine.dtype), _precision(wanted.dtype))
            require(off <= max(tolerance, least), f"{what} has wrong values, off by {off:.3g} of the largest value")

    def read_result(self, got: torch.Tensor, what: str) -> list[torch.Tensor]:
        """Returns what a result means. One that cannot be read is wrong: it was given as if it were right."""
        try:
            return self.read(got)
        except Exception as error:
            pass_on_interruption(error)
            raise BrokenClause(f"{what} cannot be read: {first_line(error)}") from None

    def holds(self, got: torch.Tensor, want: Sequence[torch.Tensor], what: str) -> None:
        """Raises `BrokenClause` unless a tensor of the class means what it should, as far as the class can hold it.

        Of each value a class may keep what is right, or what it makes of it: what `from_plain`, or `copy_` into a
        tensor of the class, leaves of it. So neither is a class wrong that rounds coarsely, nor does a wrong rule of
        such a class hide in its rounding.

        Args:
            got: The tensor.
            want: What it should mean, for each reading.
            what: What it is, for the message.

        Raises:
            BrokenClause: Sizes or values differ.
            DoesNotApply: Nobody knows what the tensor means.
        """
        kept = self._kept(got, want)
        if kept is None or any(each.shape != right.shape for each, right in zip(kept, want, strict=True)):
            self.agrees(got, want, what)
            return
        mine = self.read_result(got, what)
        self.agrees(got, [_nearer(*each) for each in zip(mine, want, kept, strict=True)], what)

    def commutes(self, what: str, program: Program, tolerance: float = 0.0) -> None:
        """Raises `BrokenClause` unless a program commutes with every reading: values, and sizes and dtype outside.

        Args:
            what: What the program is, for the message.
            program: A function of one tensor that returns one tensor, or several.
            tolerance: As of `agrees`.

        Raises:
            BrokenClause: It does something else than on dense tensors.
            DoesNotApply: Dense tensors do not do it, or nobody knows what the tensor means.
        """
        tensor = self.make()
        wanted = [self.of_dense(program, dense) for dense in self.read(tensor)]
        if not wanted:
            raise DoesNotApply("there is no reading: give readings=")
        results = several(program(tensor))
        for place, result in enumerate(results):
            want = [several(each)[place] for each in wanted]
            here = what if len(results) == 1 else f"result {place} of {what}"
            for fact in ("shape", "dtype"):
                mine, theirs = getattr(result, fact), getattr(want[0], fact)
                require(mine == theirs, f"{here}: {fact} {_listed(mine)} outside, not {_listed(theirs)}")
            if type(result) is self.cls and not tolerance:
                self.holds(result, want, here)
            else:
                self.agrees(result, want, here, tolerance)

    def commutes_or_refuses(self, what: str, program: Program) -> None:
        """Raises `BrokenClause` unless a program commutes with every reading, or the class refuses it.

        Which operators a class offers is its own affair, but it may not fail in them by a slip.
        """
        try:
            self.part(lambda: self._commutes_without_slip(what, program))
        except BrokenClause:
            raise
        except Exception as error:
            pass_on_interruption(error)

    def _commutes_without_slip(self, what: str, program: Program) -> None:
        try:
            self.commutes(what, program)
        except Exception as error:
            pass_on_interruption(error)
            slip = slip_of(error, self.cls, is_drawn=True)
            if slip is None:
                raise
            raise BrokenClause(f"{what}: {slip}") from None

    def _kept(self, like: torch.Tensor, want: Sequence[torch.Tensor]) -> list[torch.Tensor] | None:
        """Returns what a tensor of the class means that was made of values; None if it takes none.

        A class with several readings has values for each, which nothing writes.
        """
        if len(want) != 1:
            return None
        try:
            return self.read(written(like, want[0]))
        except Exception as error:  # other clauses name it
            pass_on_interruption(error)
            return None

    def of_dense(self, program: Program, dense: torch.Tensor) -> Any:
        """Returns what a program gives for a dense tensor; what dense tensors refuse is not tried with others."""
        try:
            return program(dense)
        except Exception as error:
            pass_on_interruption(error)
            raise DoesNotApply(f"dense tensors refuse it: {first_line(error)}") from None

    def values(self) -> list[torch.Tensor]:
        """Returns what `make()` means, for each reading."""
        return self.read(self.make())

    @property
    def is_told(self) -> bool:
        """Whether the author of the class says which values it holds; these it holds as they are."""
        return self._values is not None

    def held(self, like: torch.Tensor, drawn: torch.Tensor) -> torch.Tensor:
        """Returns values that the class holds: those that were drawn, or what its author says in their place.

        Args:
            like: The tensor that they are written into.
            drawn: Values of its size and dtype.

        Raises:
            ValueError: What its author says has another size, or is no dense tensor.
        """
        if self._values is None:
            return drawn
        with torch.no_grad():
            found = self._values(like.detach(), drawn)
        if type(found) is not torch.Tensor or found.shape != drawn.shape:
            size = f" of {list(found.shape)}" if isinstance(found, torch.Tensor) else ""
            raise ValueError(
                f"values= gives a {type(found).__name__}{size}; for the drawn values it is given, a dense tensor of "
                f"their size {list(drawn.shape)} is wanted"
            )
        return found.to(drawn.dtype)

    def _rounding(self) -> float:
        """Returns the error by which a class rounds values written into it, as a part of the largest; a tenth at
        the most.
        """
        try:
            with torch.no_grad():
                want = [value.cos() for value in self.values()]  # of which the class knows nothing
                tensor = self.make().copy_(want[0])
            off = max(distance(mine, wanted) for mine, wanted in zip(self.read(tensor), want[:1], strict=False))
        except Exception as error:
            pass_on_interruption(error)
            return 0.0
        return min(off, COARSEST)


def written(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that holds values: what `from_plain` makes of them, or a clone after `copy_`."""
    with torch.no_grad():
        like = like.detach()
        if hasattr(like, "from_plain"):
            made = like.from_plain(values.clone())
            require(made is not NotImplemented, "from_plain gives NotImplemented")
            return made  # type: ignore[no-any-return]
        return like.clone().copy_(values)


def writes_of_others(trial: Trial) -> dict[str, Program]:
    """Returns for each inner tensor a write, by `copy_`, of a tensor that differs in that one alone."""
    others = {name: another(trial.make(), name) for name in inner_of(trial.make())}
    return {name: functools.partial(_copied, other=other) for name, other in others.items() if other is not None}


def _copied(result: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return result.copy_(other)


def _seed() -> None:
    """Seeds what tensors are drawn with; `torch.manual_seed` takes a millisecond to write down what is not there."""
    if _has_accelerator():
        torch.manual_seed(0)
    else:
        torch.default_generator.manual_seed(0)


@functools.cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()


def several(results: object) -> list[torch.Tensor]:
    """Returns the results of a program, which may be one."""
    return list(results) if isinstance(results, tuple | list) else [results]  # type: ignore[list-item]


def first_line(error: BaseException) -> str:
    """Returns an error in one line, without what makes a terminal print it bold."""
    lines = re.sub(r"\x1b\[\d*m", "", str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:160] if lines else ''}"


def _default_readings(tensor: torch.Tensor) -> list[Reading]:
    for name in READINGS:
        if getattr(type(tensor), name, None) is not getattr(torch.Tensor, name, None) and _takes_nothing(tensor, name):
            return [operator.methodcaller(name)]
    inner = inner_of(tensor)
    if all(isinstance(part, torch.Tensor) and part.shape == tensor.shape for part in inner.values()):
        return [operator.attrgetter(name) for name in inner]
    return []


def _takes_nothing(tensor: torch.Tensor, name: str) -> bool:
    """Returns whether a method can be called without arguments: a `dequantize` of codes that it is given reads no
    tensor.
    """
    try:
        inspect.signature(getattr(tensor, name)).bind()
    except TypeError:
        return False
    return True


def _in_strides_of(tensor: torch.Tensor, reading: torch.Tensor) -> torch.Tensor:
    """Returns a copy of a reading in the strides of the tensor, where these leave a place for each element."""
    reading = reading.detach()
    if reading.shape != tensor.shape or not _has_a_place_for_each(tensor):
        return reading.clone()
    strided = torch.empty_strided(tensor.shape, tensor.stride(), dtype=reading.dtype, device=reading.device)
    return strided.copy_(reading)


def _has_a_place_for_each(tensor: torch.Tensor) -> bool:
    """Returns whether no two elements have one place, as in an expanded tensor; False also where that is hard to
    say.
    """
    reached = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride <= reached:
                return False
            reached += stride * (size - 1)
    return True


def _precision(dtype: torch.dtype) -> float:
    """Returns by how much two ways to compute the same may differ."""
    return float(torch.finfo(dtype).eps ** 0.5) if dtype.is_floating_point or dtype.is_complex else 0.0


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Returns the largest difference, as a part of the largest value; infinite where only one is no number."""
    if one.dtype is other.dtype and torch.equal(one, other):
        return 0.0  # as most are
    wide = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    if one.shape != other.shape:
        return float("inf")
    finite = one.isfinite() & other.isfinite()
    same = (one == other) | (one.isnan() & other.isnan())
    if not bool((finite | same).all()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    off = float((one - other)[finite].abs().max())
    return off / max(float(other[finite].abs().max()), 1e-6) if off else 0.0


def _nearer(to: torch.Tensor, right: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns of each two values the nearer one."""
    if to.shape != right.shape or not right.is_floating_point():
        return right
    return torch.where((to - other).abs() < (to - right).abs(), other, right)


def _listed(fact: object) -> object:
    return list(fact) if isinstance(fact, torch.Size) else fact
