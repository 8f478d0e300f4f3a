"""The memory that tensors without data share: how large it is, and its listeners.

Note [Storages]
~~~~~~~~~~~~~~~
Autograd saves an operator's output as a detached copy, so that the output and the node that saves it are no cycle. Of a
tensor without data that copy is a view. If a view held the tensor that it is a view of, the copy would hold the output,
and the output the node: a cycle through C++, which no collector sees, and every trace would stay in memory. So what a
leaf and its views have in common is an object without history.

It is also what stands for memory: it is born with the first tensor that has it, and dies with the last one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, Protocol

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base._stack import user_line
from subclass_aot.base.put_back import PutBack
from subclass_aot.errors import DataDependentError, LastingChangeError
from subclass_aot.meta.spec import Spec, native_device

_NO_MEMORY = """`{call}` asks for the memory of a tensor, and {storage} has none.
  Your line:  {line}
  Instead: call it outside the traced function, or put what needs the memory into a custom operator."""


class Listener(Protocol):
    """What is called for storages and for operators: see `listener.Listener`."""

    def on_operator(self, operation: Any) -> None:
        """Is called after each operator."""

    def on_storage(self, storage: Storage) -> None:
        """Is called when a storage is made."""

    def on_resize(self, storage: Storage, before: int) -> None:
        """Is called when the size of a storage has changed."""

    def on_release(self, storage: Storage) -> None:
        """Is called when a storage dies."""


class _OfThread(threading.local):
    """The listeners of this thread."""

    listeners: tuple[Listener, ...] = ()


in_thread = _OfThread()


@contextmanager
def without_listeners() -> Iterator[None]:
    """Runs the block without listeners in this thread: what runs is not the program's."""
    with PutBack(partial(setattr, in_thread, "listeners", in_thread.listeners)):
        in_thread.listeners = ()
        yield


class Storage:
    """The memory of a tensor without data, and of all its views. See Note [Storages].

    Listeners hear when one is made, when its size changes, and when it dies.

    Args:
        spec: Of the tensor that it is made for.
        nbytes: Its size in bytes; what `spec` needs if left out.

    Attributes:
        spec: The metadata of the tensor that it was made for; in a trace, as it is now.
        tag: Belongs to the recorder: the node of the tensor that it was made for. None where there is no recorder.
    """

    __slots__ = ("spec", "tag", "_nbytes", "_handle", "_told", "__weakref__")

    def __init__(self, spec: Spec, nbytes: Any = None) -> None:
        self.spec = spec
        self._nbytes = nbytes
        self.tag: Any = None
        self._handle: weakref.ref[StorageHandle] | None = None
        if _listening:
            self._told = in_thread.listeners  # of its death, too, in whatever thread that is
            for listener in self._told:
                listener.on_storage(self)

    @staticmethod
    def of(tensor: torch.Tensor) -> Storage:
        """Returns the storage of a tensor without data; for a real one, a storage in its place while that is there.

        >>> x = torch.ones(4)
        >>> Storage.of(x) is Storage.of(x[1:]), Storage.of(x)
        (True, Storage(16 bytes, cpu))
        """
        own: Storage | None = getattr(tensor, "meta_storage", None)
        return own or of_memory(tensor.untyped_storage(), Spec.of(tensor))

    @staticmethod
    def note_size(memory: torch.UntypedStorage) -> None:
        """Calls listeners if a real storage that they know has another size now."""
        found = _of_real.get(id(memory))
        if found is not None:
            found[1].resize(memory.nbytes())

    @property
    def nbytes(self) -> Any:
        """The size in bytes; a symbolic number where sizes are symbols."""
        return _needed(self.spec) if self._nbytes is None else self._nbytes

    @property
    def device(self) -> torch.device:
        """The device that it claims to be on."""
        return self.spec.device

    def resize(self, nbytes: Any) -> None:
        """Changes the size, and calls listeners.

        Args:
            nbytes: The new size in bytes.
        """
        before, self._nbytes = self.nbytes, nbytes
        if nbytes != before:
            for listener in in_thread.listeners:
                listener.on_resize(self, before)

    def make_room(self, spec: Spec, is_owner: bool) -> None:
        """Grows where a tensor that changed in place needs more memory than there is.

        Args:
            spec: The metadata of the tensor now.
            is_owner: Whether it is the one that the storage was made for.
        """
        nbytes = self._nbytes = self.nbytes
        if spec.solver is None and isinstance(nbytes, int) and _needed(spec) > nbytes:
            self.resize(_needed(spec))
        if is_owner:
            self.spec = spec

    def handle(self) -> StorageHandle:
        """Returns what `untyped_storage()` gives of each tensor with this storage."""
        handle = None if self._handle is None else self._handle()
        if handle is None:
            handle = StorageHandle.of(self)
            self._handle = weakref.ref(handle)
        return handle

    def __repr__(self) -> str:
        return f"Storage({self.nbytes} bytes, {self.device})"


def _needed(spec: Spec) -> Any:
    return spec.extent * spec.dtype.itemsize


_lock = threading.Lock()
_listening: tuple[Listener, ...] = ()
"""The listeners of all threads."""


def add_listener(listener: Listener, is_added: bool) -> None:
    """Has storages report their death while there are listeners: with a `__del__` they would die more slowly.

    Args:
        listener: The listener.
        is_added: Whether it begins to listen, or ends.
    """
    global _listening
    with _lock:
        _listening = (*_listening, listener) if is_added else tuple([x for x in _listening if x is not listener])
        if _listening:
            Storage.__del__ = _released  # type: ignore[attr-defined]
        elif hasattr(Storage, "__del__"):
            del Storage.__del__
        if hooks.leaves is not None:
            hooks.leaves.listen_to_leaves(len(_listening))


def _released(storage: Storage) -> None:
    here = in_thread.listeners
    for listener in here:
        listener.on_release(storage)
    for listener in getattr(storage, "_told", ()):
        if listener not in here and listener in _listening:
            listener.on_release(storage)


_of_real: dict[int, tuple[weakref.ref[torch.UntypedStorage], Storage]] = {}
"""By their id, real storages, and what stands for each."""


def of_memory(memory: torch.UntypedStorage, spec: Spec) -> Storage:
    """Returns a storage without data for one of torch's storages, the same as long as that is there.

    Args:
        memory: The storage.
        spec: Of a tensor that has it.

    Raises:
        LastingChangeError: It is that of a traced tensor.
    """
    if isinstance(memory, StorageHandle):
        if memory.shared.tag is not None:
            raise LastingChangeError(memory._no_memory("set_()"))
        return memory.shared
    key = id(memory)  # which is the same for as long as any tensor has this storage
    found = _of_real.get(key)
    if found is None:
        storage = Storage(spec, memory.nbytes())
        _of_real[key] = weakref.ref(memory, lambda _: _of_real.pop(key, None)), storage
        return storage
    found[1].resize(memory.nbytes())
    return found[1]


def _refuses(call: str) -> Callable[..., NoReturn]:
    def refuse(self: StorageHandle, *args: object, **kwargs: object) -> NoReturn:
        self._refuse(f"{call}()")

    return refuse


class StorageHandle(torch.UntypedStorage):
    """The object that a program gets for a `Storage`: one of torch's storages, with a size and without memory.

    Torch itself refuses what reads or writes the memory, as of any wrapper.
    """

    shared: Storage

    @staticmethod
    def of(storage: Storage) -> StorageHandle:
        """Makes one for a storage, which it keeps alive, as a storage of torch's keeps memory."""
        handle: Any = _torch.wrappers.make_wrapper_subclass(
            _Blank, (1,), device=native_device(storage.device)
        ).untyped_storage()
        handle.__class__ = StorageHandle
        handle.shared = storage
        return handle  # type: ignore[no-any-return]

    def nbytes(self) -> Any:
        """Returns the size in bytes."""
        return self.shared.nbytes

    size = __len__ = nbytes

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device that it claims to be on."""
        return self.shared.device

    @property
    def _cdata(self) -> int:
        """What programs compare: the same for all tensors that share memory."""
        return id(self.shared)

    def resize_(self, size: int) -> StorageHandle:
        """Changes the size, except in a trace."""
        if self.shared.tag is not None:
            self._refuse("resize_()")
        self.shared.resize(int(size))
        return self

    def share_memory_(self, *args: object) -> StorageHandle:
        """Does nothing, except in a trace: there is nothing to share."""
        if self.shared.tag is not None:
            self._refuse("share_memory_()")
        return self

    _share_fd_cpu_ = _share_filename_cpu_ = share_memory_

    def __repr__(self) -> str:
        return f"[{torch.typename(self)}(device={self.device}) of size {self.nbytes()}]"

    def _no_memory(self, call: str) -> str:
        """Returns that a call asks for memory that is not there."""
        return _NO_MEMORY.format(call=f"untyped_storage().{call}", line=user_line(), storage=self.shared)

    def _refuse(self, call: str) -> NoReturn:
        raise DataDependentError(self._no_memory(call))

    # Torch would swap bytes at address zero, or go round in circles.
    byteswap, tolist, __getitem__, __reduce__ = map(_refuses, ("byteswap", "tolist", "__getitem__", "__reduce__"))


MEMORY = frozenset({torch.UntypedStorage, StorageHandle})
"""The classes of what `untyped_storage()` gives."""


class _Blank(torch.Tensor):
    """A tensor that has nothing but the storage that torch makes for a wrapper."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, *args: Any) -> Any:
        return NotImplemented
