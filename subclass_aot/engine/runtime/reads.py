"""Finds which plain numbers and texts of its modules a forward reads while it is traced: only these have to be equal.

Many models number their layers (`self.layer_idx`), and read that number in some calls only. While a forward is traced,
a descriptor on the class of each module stands in the way of such attributes and notes who asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch

from subclass_aot.base.put_back import PutBack, attributes_put_back

KINDS = (int, float, bool, str, type(None))


def watchable(module: torch.nn.Module, names: Iterable[str]) -> list[str]:
    """Returns the attributes of which every read will be noticed: none if a class reads the `__dict__` of instances."""
    classes = type(module).__mro__
    of_users = [member for cls in classes if cls not in (torch.nn.Module, object) for member in vars(cls).values()]
    if any(map(_reads_dict, of_users)):
        return []
    found = [name for name in names if name != "training" and type(vars(module)[name]) in KINDS]
    return [name for name in found if not any(hasattr(vars(cls).get(name), "__set__") for cls in classes)]


@contextmanager
def noticed(
    modules: Mapping[str, torch.nn.Module], names: list[tuple[str, str]], note: Callable[[tuple[str, str]], None]
) -> Iterator[None]:
    """Runs the block, and calls `note((path, name))` for reads of attributes.

    Args:
        modules: The modules, by path.
        names: The attributes, each by the path of its module and its name.
        note: What is called.
    """
    path_of = {id(module): path for path, module in modules.items()}

    def tell(module: torch.nn.Module, name: str) -> None:
        if id(module) in path_of:
            note((path_of[id(module)], name))

    places = list(dict.fromkeys((type(modules[path]), name) for path, name in names))
    with PutBack(attributes_put_back(places)):
        for cls, name in places:
            setattr(cls, name, _Watched(cls, name, vars(cls).get(name, _Watched), tell))
        yield


class _Watched:
    """Stands before an attribute of instances; `_Watched` itself says that the class had nothing there."""

    def __init__(self, cls: type, name: str, before: object, tell: Callable[[torch.nn.Module, str], None]) -> None:
        self.cls, self.name, self.before, self.tell = cls, name, before, tell

    def __get__(self, module: torch.nn.Module | None, owner: type | None = None) -> Any:
        if module is not None:
            self.tell(module, self.name)
            if isinstance(self.before, _Watched):  # one trace runs in another
                self.before.tell(module, self.name)
            if self.name in vars(module):
                return vars(module)[self.name]
        found = [self.before] if self.before is not _Watched and not isinstance(self.before, _Watched) else []
        found += [vars(base)[self.name] for base in self.cls.__mro__[1:] if self.name in vars(base)]
        if not found:
            raise AttributeError(f"{self.cls.__name__!r} object has no attribute {self.name!r}")
        value = found[0]
        return value.__get__(module, owner) if hasattr(value, "__get__") else value

    def __set__(self, module: torch.nn.Module, value: object) -> None:
        vars(module)[self.name] = value

    def __delete__(self, module: torch.nn.Module) -> None:
        del vars(module)[self.name]


def _reads_dict(member: object) -> bool:
    member = getattr(member, "__func__", getattr(member, "fget", member))
    return isinstance(member, FunctionType) and not {"__dict__", "vars", "copy", "deepcopy", "__getstate__"}.isdisjoint(
        member.__code__.co_names
    )
