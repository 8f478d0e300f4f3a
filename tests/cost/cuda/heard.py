"""What runs, for tests of rules by device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.meta import Listener

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="where CUDA is, its own kernels choose")


class Heard(Listener):
    """Notes the names of operators, and counts bytes of storages.

    Attributes:
        names: The operators in their order.
        now: Bytes that are alive.
        peak: Their maximum.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.now = self.peak = 0

    def on_operator(self, operation: Any) -> None:
        self.names.append(operation.func.overloadpacket.__name__)

    def on_storage(self, storage: Any) -> None:
        self.now += storage.nbytes
        self.peak = max(self.peak, self.now)

    def on_release(self, storage: Any) -> None:
        self.now -= storage.nbytes

    def __contains__(self, name: str) -> bool:
        return name in self.names
