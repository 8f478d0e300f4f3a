"""Whose a module of Python is: a library's, or the user's."""

from __future__ import annotations

import abc
import functools
import sys

from subclass_aot.base._stack import is_installed

MACHINERY = (frozenset(sys.stdlib_module_names) - {"__main__", "argparse", "collections", "types"}) | {
    "numpy", "optree", "sympy", "pytest", "_pytest", "hypothesis", "tqdm", "PIL", "pandas", "subclass_aot",
}  # fmt: skip
"""Top-level packages whose objects are not walked, but for a few of torch's."""


_MAKERS = ("abc", "_py_abc")
"""Modules of Python that are written on a class which a call has made, `ABCMeta("Name", bases, {})`: it ran there."""


def module_of(cls: type) -> str:
    """Returns the module of Python that a class belongs to: of one that is made by a call, that of its bases; "" if
    none of them has one.
    """
    if cls.__module__ not in _MAKERS or cls is abc.ABC:
        return cls.__module__ or ""
    bases = [base.__module__ or "" for base in cls.__mro__]
    return next((module for module in bases if module not in (*_MAKERS, "builtins")), "")


def is_machinery(module: str) -> bool:
    """Returns whether a function or class of a module of Python belongs to a library, torch among them."""
    top = module.split(".")[0]
    return top == "torch" or top in MACHINERY


@functools.lru_cache(maxsize=4096)
def is_users(module: str | None) -> bool:
    """Returns whether a module of Python is the user's: no library's, and not among the packages that are installed."""
    if module is None or is_machinery(module):
        return False
    if module == "__main__":
        return True
    found = sys.modules.get(module) or sys.modules.get(module.split(".")[0])
    file = getattr(found, "__file__", None)
    if file is None:
        return module not in sys.builtin_module_names
    return not is_installed(module if module in sys.modules else module.split(".")[0], file)
