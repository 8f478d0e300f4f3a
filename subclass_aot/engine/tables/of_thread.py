"""Hides from other threads what one thread puts into modules that it traces.

While a module is traced, tensors without data stand for its parameters and buffers. Other threads that save, evaluate,
average or train the same module meanwhile find its own tensors there.

Recurrent layers have lists of their parameters beside the tables, and make these anew where they are not the same: so
other threads find lists of their own, too. All other lists, dicts and attributes are the same for all threads; see
`subjects/other_threads/use.py` for the tensors in them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack, attributes_put_back


class ThreadTable(dict[Any, Any]):
    """A table of a module: for one thread a dict of its own, for all others that of the module.

    What reads it in C, below its methods, finds what the module has.

    Args:
        table: The dict of the module.

    Attributes:
        table: It.
    """

    __slots__ = ("_of_thread", "_thread", "table")

    def __init__(self, table: dict[Any, Any]) -> None:
        super().__init__(table)
        self.table = table
        self._of_thread: dict[Any, Any] | None = table.copy()
        self._thread = threading.get_ident()

    @property
    def mine(self) -> dict[Any, Any]:
        """The dict that this thread reads and writes."""
        own = self._of_thread
        return own if own is not None and threading.get_ident() == self._thread else self.table

    def end(self) -> None:
        """Gives all threads the dict of the module; other code may have kept this one."""
        self._of_thread = None

    def __reduce_ex__(self, protocol: object) -> Any:
        return dict, (dict(self.mine),)

    __hash__ = None


def _reading(name: str) -> Callable[..., Any]:
    def method(self: ThreadTable, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.mine, name)(*args, **kwargs)

    return method


def _writing(name: str) -> Callable[..., Any]:
    def method(self: ThreadTable, *args: Any, **kwargs: Any) -> Any:
        mine = self.mine
        result = getattr(mine, name)(*args, **kwargs)
        if mine is self.table:
            dict.clear(self)
            dict.update(self, mine)
        return self if name == "__ior__" else result

    return method


for _name in ("__contains__", "__eq__", "__getitem__", "__iter__", "__len__", "__ne__", "__or__", "__repr__",
              "__reversed__", "__ror__", "copy", "get", "items", "keys", "values"):  # fmt: skip
    setattr(ThreadTable, _name, _reading(_name))
for _name in ("__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(ThreadTable, _name, _writing(_name))


class _OtherList:
    """An attribute of a class of modules: for one thread what the module has, for all others a list of their own.

    Args:
        name: The name of the attribute, which is a list.
        modules: Those that have it.
    """

    def __init__(self, name: str, modules: Iterable[torch.nn.Module]) -> None:
        self._name, self._thread = name, threading.get_ident()
        self._before = {id(module): (vars(module), list(vars(module)[name])) for module in modules}
        self._others = {key: elements for key, (_, elements) in self._before.items()}

    def _is_other(self, module: torch.nn.Module) -> bool:
        return threading.get_ident() != self._thread and id(module) in self._others

    def __get__(self, module: torch.nn.Module | None, cls: type) -> Any:
        if module is None:
            return self
        try:
            return self._others[id(module)] if self._is_other(module) else vars(module)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, module: torch.nn.Module, value: Any) -> None:
        if self._is_other(module):
            self._others[id(module)] = value
        else:
            vars(module)[self._name] = value

    def end(self) -> None:
        """Gives modules the lists that other threads have assigned."""
        for key, (attributes, before) in self._before.items():
            if self._others[key] is not before:
                attributes[self._name] = self._others[key]


@contextmanager
def tables_of_this_thread(modules: Iterable[torch.nn.Module]) -> Iterator[None]:
    """Runs the block so that this thread alone sees what it puts among the parameters, buffers and submodules of
    modules.
    """
    modules = list(modules)
    swapped = [
        (vars(module), name, ThreadTable(vars(module)[name]))
        for module in modules
        for name in _torch.modules.MODULE_TABLES
    ]
    with ExitStack() as stack:
        for name in _torch.modules.LISTS_OF_WEIGHTS:
            recurrent = [m for m in modules if isinstance(m, torch.nn.RNNBase) and type(vars(m).get(name)) is list]
            if recurrent:
                stack.enter_context(_class_attribute(torch.nn.RNNBase, name, _OtherList(name, recurrent)))

        def put_back() -> None:
            for holder, name, table in swapped:
                holder[name] = table.table
                table.end()

        stack.enter_context(PutBack(put_back))
        for holder, name, table in swapped:
            holder[name] = table
        yield


@contextmanager
def _class_attribute(cls: Any, name: str, attribute: _OtherList) -> Iterator[None]:
    with PutBack(attributes_put_back([(cls, name)])), PutBack(attribute.end):
        setattr(cls, name, attribute)
        yield
