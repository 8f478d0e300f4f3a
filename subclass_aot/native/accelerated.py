"""Finding the accelerator, and choosing which parts run natively."""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import torch

from subclass_aot.base import hooks
from subclass_aot.native import background, build, cache

Part = Literal["exact", "modes", "recipes", "tables", "nodes", "graphs", "kernels", "leaves", "products", "memory"]

PARTS: Final[dict[Part, str]] = {
    "exact": "comparing and setting many Python objects at once",
    "modes": "reading the modes of torch",
    "recipes": "making wrappers of inner tensors",
    "tables": "comparing the tensors of a call, and reading their leaves",
    "nodes": "the node of autograd's graph for a call with gradients",
    "graphs": "calling the operators of a graph",
    "kernels": "serving operators on each inner tensor",
    "leaves": "serving operators on tensors without data",
    "products": "products with the codes of quantized weights, and dense weights of those in four bits",
    "memory": "comparing the memory of many tensors, and counting writes into it",
}
"""What can run natively. All but the first are parts of the accelerator."""

_SAID: Final = os.environ.get("SUBCLASS_AOT_NATIVE")

_NONE = """SUBCLASS_AOT_NATIVE={said} wants the accelerator, and {why}.
  Instead: python -m subclass_aot build-native"""

_UNKNOWN = "SUBCLASS_AOT_NATIVE={said}: there is no part {part!r}; give 0, 1, or some of {parts}, with commas between"


def _wanted(said: str | None) -> frozenset[str]:
    """Returns the parts that the environment enables; all, where it says nothing."""
    if said is None or said == "1":
        return frozenset(PARTS)
    wanted = frozenset(part.strip() for part in said.split(",")) - {"0", ""}
    for part in sorted(wanted - PARTS.keys()):
        raise ImportError(_UNKNOWN.format(said=said, part=part, parts=", ".join(PARTS)))
    return wanted


WANTED: Final = _wanted(_SAID)


def load(file: Path, name: str = "_accelerator") -> ModuleType:
    """Loads an extension that was built for this Python, and the accelerator for the torch that is running.

    Args:
        file: As `build.build` gives it.
        name: The module.

    Raises:
        ImportError: It cannot be loaded.
    """
    loader = importlib.machinery.ExtensionFileLoader(f"subclass_aot.native.{name}", str(file))
    spec = importlib.util.spec_from_file_location(loader.name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@functools.cache
def offer_exact() -> str:
    """Lets `subclass_aot.native._exact` be imported from the user's cache, where installation has not built it.

    Returns:
        Why it cannot be imported; nothing where it can.
    """
    name = "subclass_aot.native._exact"
    if importlib.util.find_spec(name) is not None:
        return ""
    try:
        file = cache.find(build.exact_file_name())
        if file is None:
            return "it is not built for this version of the library"
        sys.modules[name] = load(file, "_exact")
    except cache.CacheError as error:
        return str(error)
    except ImportError as error:
        return f"it cannot be loaded: {error}"
    return ""


@functools.cache
def find() -> tuple[ModuleType | None, str]:
    """Finds the accelerator that was built for this torch, and loads it.

    Returns:
        The module and its file; or None, and why there is none.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "it needs a Python with a global interpreter lock"
    own, broken = Path(__file__).parent / build.file_name(), ""
    file: Path | None = own
    try:
        if os.path.exists(str(own)):
            try:
                return load(own), str(own)
            except ImportError as error:  # of another machine, perhaps: one that was built here may be in the cache
                broken = f"{own} cannot be loaded: {error}"
        file = cache.find(build.file_name())
        if file is not None:
            return load(file), str(file)
        folders = [Path(__file__).parent, cache.folder()]
    except cache.CacheError as error:
        return None, broken or str(error)
    except ImportError as error:
        return None, f"{file} cannot be loaded: {error}"
    if broken:
        return None, broken
    found = {path.name for folder in folders for path in folder.glob("_accelerator-*")}
    others = sorted(name for name in found if not name.endswith((".sha256", ".log")))
    why = f"it is not built for torch {torch.__version__} and this version of the library"
    return None, why + (f" (there is {', '.join(others)})" if others else "")


def accelerator(part: Part) -> Any:
    """Gives the accelerator, if it is there and a part of it is to run; else None.

    Args:
        part: One of `PARTS`.
    """
    return find()[0] if part in WANTED else None


if _SAID is not None and WANTED - {"exact"} and find()[0] is None:
    raise ImportError(_NONE.format(said=_SAID, why=find()[1]))


def show_config() -> str:
    """Says which parts run natively and which in Python, and why.

    Returns:
        A text of some lines.

    >>> print(show_config().split()[0])
    subclass_aot
    """
    runs = dict.fromkeys(PARTS, "Python")
    for part in PARTS:
        if part == "exact":
            runs[part] = "C" if hooks.one_call_pays else "Python"
        elif hooks.products is not None if part == "products" else accelerator(part) is not None:
            runs[part] = "C++"
    lines = [f"subclass_aot {sys.modules['subclass_aot'].__version__}, torch {torch.__version__}"]
    lines += [f"{part} ({what}): {runs[part]}" for part, what in PARTS.items()]
    if _SAID is not None:
        lines.append(f"The environment says SUBCLASS_AOT_NATIVE={_SAID}.")
    module, where = find()
    if module is not None:
        lines.append(f"The accelerator is {where}.")
    without = offer_exact() if "exact" in WANTED else ""
    if module is None and where == without:
        lines.append(f"There is no accelerator, and no extension in C: {where}.")
    else:
        lines += [f"There is no accelerator: {where}."] * (module is None)
        lines += [f"There is no extension in C: {without}."] * bool(without)
    if module is None or without:
        lines.append("To build it: python -m subclass_aot build-native")
        with contextlib.suppress(cache.CacheError, OSError):
            lines += [
                f"The log of its build in the background: {file}." for file in [background.log_file()] if file.exists()
            ]
    return "\n".join(lines)
