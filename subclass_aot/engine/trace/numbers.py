"""What a trace with symbols runs in, so that numbers of Python may be symbols: the subject `numbers` fills it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from subclass_aot.base.later import Later


class Hashes(Protocol):
    """Whether symbols have hashes.

    Attributes:
        refused: Whether one was read in vain.
    """

    refused: bool


attempt: Later[[bool], AbstractContextManager[Hashes]] = Later("numbers.attempt")
"""Makes what one attempt runs in; with True, symbols have the hashes of their values."""

program: Later[[bool], AbstractContextManager[None]] = Later("numbers.program")
"""Makes what the function of the program runs in; with True, there is a call whose numbers can be read."""

were_met: Later[[], bool] = Later("numbers.were_met")
"""Says whether another attempt would have more numbers be symbols."""
