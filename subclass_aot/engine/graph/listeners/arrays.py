"""Arrays of numpy that a program got of traced tensors: in eager mode they share memory with these."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.aliasing import has_storage
from subclass_aot.engine.graph.listeners.constants import LITERAL
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.errors import OnlyInEagerModeError
from subclass_aot.meta import MetaTensor, Storage

_SHARED = """An array of numpy shares memory with a tensor, and {what}.
  The array:  {line}
  Instead: copy it, as in x.numpy().copy()"""

_TOO_MANY = """An array of numpy has {count} elements, which are too many to be compared at each call.
  The array:  {line}
  Instead: compute it outside the function, or by operators of torch"""


class _Array(NamedTuple):
    """An array that a program got.

    Attributes:
        array: It; views of it hold it.
        before: What it held.
        storage: The memory of the tensor.
        position: How many nodes were recorded then.
        line: The line of the user's.
    """

    array: Any
    before: bytes
    storage: Storage
    position: int
    line: str


class Arrays(GraphListener):
    """Finds out whether it makes a difference that an array of a trace is a copy."""

    effects = ("writes",)

    def __init__(self) -> None:
        self._arrays: list[_Array] = []

    def fork(self) -> Arrays:
        """Returns a new one: an array that backward gets is refused."""
        return Arrays()

    def forget(self) -> None:
        self._arrays.clear()

    def note(self, recorder: Tape, leaf: MetaTensor, array: Any) -> None:
        """Notes an array of the values of a leaf."""
        storage = Storage.of(leaf)
        self._arrays.append(_Array(array, array.tobytes(), storage, len(recorder.graph.nodes), user_line()))

    def refuse_large(self, count: int) -> None:
        """Has the function itself run, since it reads an array that is too large.

        Raises:
            OnlyInEagerModeError: Always.
        """
        raise OnlyInEagerModeError(_TOO_MANY.format(count=count, line=user_line()))

    def on_write(self, recorder: Tape, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        storage = Storage.of(leaf)
        tag = storage.tag
        if getattr(tag, "target", None) is LITERAL and _memory_of_array(recorder, tag.args[0]) is not None:
            raise OnlyInEagerModeError(_SHARED.format(what="the tensor is written", line=user_line()))
        for noted in self._arrays:
            if noted.storage is storage and _is_held(noted):
                raise OnlyInEagerModeError(_SHARED.format(what="the tensor is written later", line=noted.line))

    def on_end(self, recorder: Tape) -> None:
        """Has the function itself run if an array was written, or is still there at the end.

        Raises:
            OnlyInEagerModeError: An array was written whose tensor was read later, or it outlives the call.
        """
        made = _made_of_arrays(recorder) if self._arrays else []
        for noted in self._arrays:
            tensors = {memory: literal for literal, memory in made if _is_part(memory, noted.array)}
            lasts = any(not literal.users for literal in tensors.values())  # and may be a result
            if lasts or _is_held(noted, len(tensors)):
                raise OnlyInEagerModeError(_SHARED.format(what="is there after the call", line=noted.line))
            if noted.array.tobytes() != noted.before and _is_read_later(recorder, noted):
                raise OnlyInEagerModeError(_SHARED.format(what="is written", line=noted.line))


def _references(noted: _Array) -> tuple[int, int]:
    """Returns how many references there are to an array, and to the memory of its tensor."""
    return sys.getrefcount(noted.array), sys.getrefcount(noted.storage)


_ALONE = _references(_Array([], b"", [], 0, ""))  # type: ignore[arg-type]


def _is_held(noted: _Array, tensors: int = 0) -> bool:
    """Returns whether the program still holds an array, beside so many tensors that were made of it."""
    return _references(noted)[0] > _ALONE[0] + tensors


def _made_of_arrays(recorder: Tape) -> list[tuple[fx.Node, int]]:
    """Returns the tensors that a program made of arrays and the like: each as a node, and where its memory begins."""
    found = []
    for node in recorder.graph.find_nodes(op="get_attr"):
        memory = _memory_of_array(recorder, node)
        if memory is not None:
            found += [(user, memory) for user in node.users if user.target is LITERAL]
    return found


def _memory_of_array(recorder: Tape, constant: fx.Node) -> int | None:
    """Returns where the memory of a constant begins, if that is of an array and the like: no tensor can resize it."""
    real = recorder.listeners.real_tensors.constants.get(str(constant.target))
    if real is None or not has_storage(real) or real.untyped_storage().resizable():
        return None
    return real.untyped_storage().data_ptr()


def _is_part(memory: int, array: Any) -> bool:
    begin = array.__array_interface__["data"][0]
    return begin <= memory < begin + max(array.nbytes, 1)  # type: ignore[no-any-return]


def _is_read_later(recorder: Tape, noted: _Array) -> bool:
    """Returns whether the memory of a tensor was read later than an array was made of it, or may be after the call."""
    base: fx.Node = noted.storage.tag
    if base.op != "call_function" or _references(noted)[1] > _ALONE[1]:  # an input, or a tensor that is still there
        return True
    order = {node: i for i, node in enumerate(recorder.graph.nodes)}
    todo = [base]
    while todo:
        for user in todo.pop().users:
            if order[user] >= noted.position:
                return True
            if any(viewed is not None for viewed in effects_of(user.target).returns_view_of):
                todo.append(user)
    return False
