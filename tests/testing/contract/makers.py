"""Functions that another process can import, which make tensors of classes with one mistake each, or none."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from subclass_aot import TwoTensor
from subclass_aot.base import _torch
from tests.testing.contract.classes import Held

HOME = "SUBCLASS_AOT_TESTS_HOME"
os.environ.setdefault(HOME, str(os.getpid()))


def _is_child() -> bool:
    return os.environ[HOME] != str(os.getpid())


def raises_in_child() -> Any:
    if _is_child():
        raise KeyError("only where it was made")
    return held()


def ends_the_process() -> Any:
    if _is_child():
        os.kill(os.getpid(), signal.SIGKILL)
    return held()


def held() -> Held:
    return Held(torch.randn(4, 6))


class HashesText(Held):
    def _stable_hash_for_caching(self) -> str:
        return str(hash("held"))


def hashes_text() -> HashesText:
    return HashesText(torch.randn(4, 6))


class OrderOfSet(Held):
    """Its names are in the order of a set of text, which each process has for itself."""

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return list({"held", "second", "third"}), self.note

    @property
    def second(self) -> torch.Tensor:
        return self.held

    third = second


def order_of_set() -> OrderOfSet:
    return OrderOfSet(torch.randn(4, 6))


def hash_in_context() -> Held:
    return Held(torch.randn(4, 6), hash("note"))


class LeavesRows(TwoTensor):
    """It says that its rows are those of all ranks: what is gathered of a rank's rows has the second's only."""


@LeavesRows.implements(torch.ops.aten.split.Tensor)
def _(x: Any, size: int, dim: int = 0) -> Any:
    return [x.narrow(dim, 0, size) for _ in range(x.shape[dim] // size)]


def leaves_rows() -> LeavesRows:
    return LeavesRows(torch.randn(4, 6), torch.randn(4, 6))


class SecondRaises(TwoTensor):
    """One rank can split it, and the other cannot."""


@SecondRaises.implements(torch.ops.aten.split.Tensor)
def _(x: Any, size: int, dim: int = 0) -> Any:
    if torch.distributed.get_rank() == 1:
        raise KeyError("not on this rank")
    return [x.narrow(dim, at, size) for at in range(0, x.shape[dim], size)]


def second_raises() -> SecondRaises:
    return SecondRaises(torch.randn(4, 6), torch.randn(4, 6))


def foreign_two_tensor() -> Any:
    """Torch's own class, which knows nothing of FSDP2."""
    cls = _torch.wrappers.foreign_two_tensor()
    return cls(torch.randn(4, 6), torch.randn(4, 6))
