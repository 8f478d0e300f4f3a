"""The state of torch's generator of random numbers on the CPU, which is bytes to everybody else.

It begins with the seed, in 8 bytes; the array of the Mersenne twister stands at 24. Both have stood there since the
format is kept for old files. When it changes: `initial_seed` of a generator that is given such a state says so.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from subclass_aot._torch.dispatch import disable_current_modes
from subclass_aot._torch.python_kernels import in_this_thread
from subclass_aot.put_back import PutBack, attributes_put_back

_BLOCK = 624  # numbers, after which the array is another
_BLOCKS = (1 << 20) // _BLOCK
_Generator = torch.Generator  # in a trace, another class has its name
_SEED, _ARRAY = slice(8), slice(24, 24 + 4 * _BLOCK)
_WORD = slice(24 + 400, 24 + 408)  # of 32 bits, in the place of 64
_ODD = 0x9E3779B1


def state_bytes(state: torch.Tensor) -> bytes:
    """Returns the bytes of a state; numpy, which has them at hand, may be absent."""
    return ctypes.string_at(state.data_ptr(), state.numel())


def state_of_no_seed(state: torch.Tensor, number: int) -> torch.Tensor:
    """Returns a state that no seed has, but for itself the same seed as `state`; another one for each number.

    A word of the array is another, all of whose bits count when the array is replaced.
    """
    made = bytearray(state_bytes(state))
    word = int.from_bytes(made[_WORD], sys.byteorder)
    made[_WORD] = ((word * _ODD + number * 2 + 1) % (1 << 32)).to_bytes(8, sys.byteorder)
    with disable_current_modes():
        return torch.frombuffer(made, dtype=torch.uint8)


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


@contextmanager
def calls_of_generator(**kernels: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Runs the block with functions of `torch.random` replaced in this thread; no mode sees calls of these.

    Args:
        **kernels: What makes one of torch's, by its name: `seed`, `get_rng_state`, `set_rng_state`.
    """
    with PutBack(attributes_put_back((module, name) for name in kernels for module in (torch.random, torch))):
        for name in kernels:
            function = getattr(torch.random, name)
            made = in_this_thread(kernels[name](function), function)
            setattr(torch.random, name, made)
            setattr(torch, name, made)
        yield


def is_generator(value: object) -> bool:
    """Returns whether a value is a generator of the CPU that a program made: not the default one."""
    if not isinstance(value, torch.Generator) or value.device.type != "cpu":
        return False
    return not is_default_generator(value)


def address_of_generator(generator: torch.Generator) -> int:
    """Returns what identifies a generator: for one there may be several objects."""
    address: int = generator._cdata  # type: ignore[attr-defined]
    return address


def generator_state(generator: torch.Generator) -> torch.Tensor:
    """Returns the state of a generator; in a trace, the traced tensor for it."""
    kernels: StateKernels | None = getattr(_in_thread, "kernels", None)
    return generator.get_state() if kernels is None else kernels.get(generator)


def set_generator_state(generator: torch.Generator, state: torch.Tensor) -> None:
    """Sets the state of a generator; in a trace, that may be a traced tensor."""
    kernels: StateKernels | None = getattr(_in_thread, "kernels", None)
    if kernels is None:
        generator.set_state(state)
    else:
        kernels.set(generator, state)


class _Noting(type(_Generator)):  # type: ignore[misc]
    """The class of `torch.Generator` in a trace. There is one for all traces: a class is a circle of references."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = _Generator(*args, **kwargs)
        note = getattr(_in_thread, "note", None)
        if note is not None:
            note(made)
        return made

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Generator)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, _Generator)


_NOTING = _Noting("Generator", (_Generator,), {"__module__": _Generator.__module__})


@contextmanager
def made_generators(note: Callable[[torch.Generator], None]) -> Iterator[None]:
    """Runs the block with a `torch.Generator` that calls `note` for what it makes in this thread.

    It compares equal to the class that it replaces.
    """
    with PutBack(attributes_put_back([(torch, "Generator"), (_in_thread, "note")])):
        torch.Generator, _in_thread.note = _NOTING, note  # type: ignore[misc]
        yield


class StateKernels(NamedTuple):
    """Functions that run in place of `generator_state` and `set_generator_state`."""

    get: Callable[[torch.Generator], torch.Tensor]
    set: Callable[[torch.Generator, torch.Tensor], None]


@contextmanager
def states_of_generators(kernels: StateKernels) -> Iterator[None]:
    """Runs the block with other functions that read and set the states of generators in this thread."""
    with PutBack(attributes_put_back([(_in_thread, "kernels")])):
        _in_thread.kernels = kernels
        yield


_in_thread = threading.local()


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
