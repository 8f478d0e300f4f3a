"""The state of torch's generator of random numbers on the CPU, which is bytes to everybody else.

It begins with the seed, in 8 bytes; the array of the Mersenne twister stands at 24. Both have stood there since the
format is kept for old files. When it changes: `initial_seed` of a generator that is given such a state says so.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import torch

from subclass_aot.base._torch.dispatch import disable_current_modes

_BLOCK = 624  # numbers, after which the array is another
_BLOCKS = (1 << 20) // _BLOCK
_Generator = torch.Generator  # in a trace, another class has its name
_SEED, _ARRAY = slice(8), slice(24, 24 + 4 * _BLOCK)
_WORD = slice(24 + 400, 24 + 408)  # of 32 bits, in the place of 64
_ODD = 0x9E3779B1


def state_bytes(state: torch.Tensor) -> bytes:
    """Returns the bytes of a state; numpy, which has them at hand, may be absent."""
    return ctypes.string_at(state.data_ptr(), state.numel())


def mark(generator: torch.Generator, state: torch.Tensor, number: int) -> bytes:
    """Gives a generator a state that no seed has, but for itself the same seed as `state`; returns its bytes.

    A word of the array is another, all of whose bits count when the array is replaced.

    Args:
        generator: The generator.
        state: What it would have.
        number: For each there is another state.
    """
    made = bytearray(state_bytes(state))
    word = int.from_bytes(made[_WORD], sys.byteorder)
    made[_WORD] = ((word * _ODD + number * 2 + 1) % (1 << 32)).to_bytes(8, sys.byteorder)
    with disable_current_modes():
        generator.set_state(torch.frombuffer(made, dtype=torch.uint8))
    return bytes(made)


def state_of_seed(seed: int) -> torch.Tensor:
    """Returns the state behind a seed."""
    return _Generator().manual_seed(seed).get_state()


def first_seed() -> int:
    """Returns the seed of a new generator."""
    return _Generator().initial_seed()


def is_later_state(state: bytes, earlier: bytes) -> bool:
    """Returns whether a state follows from another one by draws, a million at the most."""
    if state[_SEED] != earlier[_SEED]:
        return False
    with disable_current_modes():
        generator = _Generator()
        generator.set_state(torch.frombuffer(bytearray(earlier), dtype=torch.uint8))
        for _ in range(_BLOCKS):
            if state_bytes(generator.get_state())[_ARRAY] == state[_ARRAY]:
                return True
            torch.empty(_BLOCK, dtype=torch.int32, device="cpu").random_(generator=generator)
    return False


class _Kept:
    """A reference to a generator where torch has no weak ones, as 2.11: it has gone when nobody else has it."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def __call__(self) -> torch.Generator | None:
        return self._generator if sys.getrefcount(self._generator) > _OWN_REFERENCES else None


_OWN_REFERENCES = 2  # the attribute, and the argument of `getrefcount`


def reference_to(generator: torch.Generator) -> Callable[[], torch.Generator | None]:
    """Returns what gives a generator as long as somebody has it, and then None."""
    try:
        return weakref.ref(generator)
    except TypeError:
        return _Kept(generator)


def is_default_generator(generator: torch.Generator) -> bool:
    """Returns whether an object is the generator of the CPU that draws by default; there may be several such
    objects.
    """
    return address_of_generator(generator) == address_of_generator(torch.default_generator)


def is_own_generator(generator: torch.Generator) -> bool:
    """Returns whether a generator is one of the CPU that a program made: not the default one."""
    return generator.device.type == "cpu" and not is_default_generator(generator)


def address_of_generator(generator: torch.Generator) -> int:
    """Returns what identifies a generator: for one there may be several objects."""
    address: int = generator._cdata  # type: ignore[attr-defined]
    return address


class OfTrace(Protocol):
    """Answers calls about random numbers that a program makes while it is traced."""

    def is_recording(self) -> bool:
        """Returns whether the program runs that is traced, and may read values."""

    def note_line(self) -> None:
        """Notes the line at which the program draws by Python or numpy what no graph can draw."""

    def refuse_chance(self) -> NoReturn:
        """Refuses a seed by chance."""

    def get_state(self) -> torch.Tensor:
        """Returns the state of the default generator."""

    def set_state(self, state: torch.Tensor) -> None:
        """Sets the state of the default generator."""

    def state_of(self, generator: torch.Generator) -> torch.Tensor:
        """Returns the state of a generator of the program's."""

    def set_state_of(self, generator: torch.Generator, state: torch.Tensor) -> None:
        """Sets the state of a generator of the program's."""

    def note_made(self, generator: torch.Generator) -> None:
        """Notes that the program has made a generator."""


class _OfThread(threading.local):
    """Holds what answers for the traces of a thread, innermost last."""

    def __init__(self) -> None:
        self.asked: list[OfTrace] = []


of_thread = _OfThread()


def trace_in_this_thread() -> OfTrace | None:
    """Returns what answers for the trace that runs in this thread; None if there is none."""
    return of_thread.asked[-1] if of_thread.asked else None


def generator_state(generator: torch.Generator) -> torch.Tensor:
    """Returns the state of a generator; in a trace, the traced tensor for it."""
    trace = trace_in_this_thread()
    return generator.get_state() if trace is None else trace.state_of(generator)


def set_generator_state(generator: torch.Generator, state: torch.Tensor) -> None:
    """Sets the state of a generator; in a trace, that may be a traced tensor."""
    trace = trace_in_this_thread()
    if trace is None:
        generator.set_state(state)
    else:
        trace.set_state_of(generator, state)


class _Noting(type(_Generator)):  # type: ignore[misc]
    """The class of `torch.Generator` in a trace. There is one for all traces: a class is a circle of references.

    It compares equal to the class that it replaces.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made, trace = _Generator(*args, **kwargs), trace_in_this_thread()
        if trace is not None:
            trace.note_made(made)
        return made

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Generator)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _Generator)


_own_seed, _own_get, _own_set = torch.random.seed, torch.random.get_rng_state, torch.random.set_rng_state


def _seed() -> int:
    trace = trace_in_this_thread()
    return _own_seed() if trace is None else trace.refuse_chance()


def _get_rng_state() -> torch.Tensor:
    trace = trace_in_this_thread()
    return _own_get() if trace is None else trace.get_state()


def _set_rng_state(new_state: torch.Tensor) -> None:
    trace = trace_in_this_thread()
    return _own_set(new_state) if trace is None else trace.set_state(new_state)


_of_random = {"seed": _seed, "get_rng_state": _get_rng_state, "set_rng_state": _set_rng_state}
_noting = _Noting("Generator", (_Generator,), {"__module__": _Generator.__module__})

STAND_INS: Sequence[tuple[dict[str, Any], dict[str, Any]]] = (
    (vars(torch.random), _of_random),
    (vars(torch), {**_of_random, "Generator": _noting}),
)
"""What stands in modules of torch in a trace, by name; no mode sees calls of these functions."""


def draw_and_keep_state() -> Any:
    """Returns the operator of torch's that draws, and gives the state of the generator before that: `(state, result)`.

    Its module has no public name. Torch's partitioners make it; compilers know it.
    """
    return _of_rng_prims("run_and_save_rng_state")


def draw_from_state() -> Any:
    """Returns the operator of torch's that draws from a given state, and leaves the generator as it is."""
    return _of_rng_prims("run_with_rng_state")


def _of_rng_prims(name: str) -> Any:
    from torch._prims import rng_prims

    return getattr(rng_prims, name)
