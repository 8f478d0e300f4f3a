"""Finds modules by the names that they had before they were sorted into layers: pickles and programs have these."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = "subclass_aot"

_HAVE_MOVED = {
    "base": "_stack _torch _version_check bytecode codegen exact hooks logs lru_caches missing named operators ops"
    " plain_values put_back refused shown_type tricks weak whole_files",
    "kit": "declaration flatten views wrapper",
    "meta": "symbols",
    "engine": "aliasing call compile descriptors facts graph guards objects options outcome outputs passes runtime"
    " signature sizes specializations stages tables trace",
    "doors": "aotautograd blocks dynamo export joint",
    "files.compiled": "restore",
    "cost": "devices profiling",
    "testing": "benchmark explain inspection progress",
    "tensors": "products",
}
"""The modules of version 0.1 by the layer that has them now. `load` is not among them: `sa.load` is a function."""

_NOW = {module: f"{layer}.{module}" for layer, modules in _HAVE_MOVED.items() for module in modules.split()} | {
    "_native": "native",
    "meta.assumptions": "cost.without_data.assumptions",
    "meta.mode": "cost.without_data.mode",
    "meta.module": "cost.without_data.module",
    "saved": "files.compiled",
}


def name_now(name: str) -> str | None:
    """Returns the name that a module has now.

    Args:
        name: The name of a module, as an earlier version had it.

    Returns:
        The name of today, or None of a module that has not moved.

    >>> name_now("subclass_aot.wrapper.serialize")
    'subclass_aot.kit.wrapper.serialize'
    """
    package, *below = name.split(".")
    for end in (1, 2) if package == _PACKAGE and below else ():
        if (now := _NOW.get(".".join(below[:end]))) is not None:
            return ".".join([package, now, *below[end:]])
    return None


class _EarlierNames(MetaPathFinder, Loader):
    """Imports a module of an earlier name as the module of today, which then has both names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if (now := name_now(fullname)) is None else ModuleSpec(fullname, self, origin=now)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        assert spec.origin is not None
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Gives a module its own spec again: Python has set that of the earlier name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


# At the front: an earlier name of a package has the path of today's, where Python would find its files a second time.
sys.meta_path.insert(0, _EarlierNames())
