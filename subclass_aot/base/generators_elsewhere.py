"""The generators of random numbers that belong to the process beside torch's: those of Python and numpy.

To read the state of numpy's takes as long as thirty operators. Most programs draw nothing of it, which its memory says.
"""

from __future__ import annotations

import ctypes
import pickle
import random
import sys
from collections.abc import Mapping
from typing import NamedTuple, Protocol

OF_PYTHON: random.Random = random.random.__self__  # type: ignore[attr-defined]
"""The generator behind the functions of `random`, whatever stands in their places."""

_TWISTER = 4 * 624 + 4
"""The size of the state of a Mersenne twister: its numbers, and which of them is the next."""


class _OfNumpy(Protocol):
    """Numpy's generator. It has no public name, and neither has what it draws bits of."""

    _bit_generator: object

    def get_state(self, legacy: bool) -> Mapping[str, object]: ...
    def set_state(self, state: Mapping[str, object]) -> None: ...


class StatesElsewhere(NamedTuple):
    """States of these generators.

    Attributes:
        python: That of Python's.
        numpy: That of numpy's; None where nobody has imported it, and so nobody draws of it.
        memory: What the memory of numpy's held, if that says whether a number was drawn: no normal one is left over.
    """

    python: tuple[object, ...]
    numpy: Mapping[str, object] | None = None
    memory: bytes | None = None


def states_elsewhere() -> StatesElsewhere:
    """Returns the states as they are."""
    of_numpy, memory = _of_numpy()
    if of_numpy is None:
        return StatesElsewhere(OF_PYTHON.getstate())
    state = of_numpy.get_state(legacy=False)
    return StatesElsewhere(OF_PYTHON.getstate(), state, None if state["has_gauss"] else memory)


def put_back_elsewhere(states: StatesElsewhere | None) -> None:
    """Sets the generators to states, if there are any."""
    drawn, (of_numpy, _) = drawn_elsewhere(states), _of_numpy()
    if states is not None and "random" in drawn:
        OF_PYTHON.setstate(states.python)
    if states is not None and states.numpy is not None and of_numpy is not None and "numpy.random" in drawn:
        of_numpy.set_state(states.numpy)


def drawn_elsewhere(states: StatesElsewhere | None) -> list[str]:
    """Returns of which of them numbers were drawn since they had these states, by the modules.

    Args:
        states: The states, if there are any.
    """
    if states is None:
        return []
    drawn = ["random"] if OF_PYTHON.getstate() != states.python else []
    of_numpy, memory = _of_numpy()
    if of_numpy is None or states.numpy is None:  # it was imported since
        return drawn
    if states.memory is not None and states.memory == memory:
        return drawn
    is_same = pickle.dumps(of_numpy.get_state(legacy=False)) == pickle.dumps(states.numpy)
    return drawn if is_same else [*drawn, "numpy.random"]


def _of_numpy() -> tuple[_OfNumpy | None, bytes | None]:
    """Returns numpy's generator, and what its memory holds, which numpy gives the address of; None for other kinds."""
    module = sys.modules.get("numpy.random.mtrand")
    if module is None:
        return None, None
    kind = module._rand._bit_generator
    is_twister = type(kind).__name__ == "MT19937"
    return module._rand, ctypes.string_at(kind.ctypes.state_address, _TWISTER) if is_twister else None
