"""Finding the accelerator, and choosing which parts of it run."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import torch

from subclass_aot._native import build

Part = Literal["modes", "recipes", "tables", "kernels"]

PARTS: Final[dict[Part, str]] = {
    "modes": "reading the modes of torch",
    "recipes": "making wrappers of inner tensors",
    "tables": "comparing the tensors of a call, and reading their leaves",
    "kernels": "serving operators on each inner tensor",
}
"""What the accelerator does, part by part."""

_SAID: Final = os.environ.get("SUBCLASS_AOT_NATIVE")

_NONE = """SUBCLASS_AOT_NATIVE={said} wants the accelerator, and {why}.
  Instead: python -m subclass_aot build-native"""

_UNKNOWN = "SUBCLASS_AOT_NATIVE={said}: there is no part {part!r}; give 0, 1, or some of {parts}, with commas between"


def _wanted() -> frozenset[str]:
    """The parts that the environment asks for; all, where it says nothing."""
    if _SAID is None or _SAID == "1":
        return frozenset(PARTS)
    wanted = frozenset(part.strip() for part in _SAID.split(",")) - {"0", ""}
    for part in sorted(wanted - PARTS.keys()):
        raise ImportError(_UNKNOWN.format(said=_SAID, part=part, parts=", ".join(PARTS)))
    return wanted


WANTED: Final = _wanted()


def _folders() -> list[Path]:
    return [Path(__file__).parent, build.cache()]


def _load() -> tuple[ModuleType | None, str]:
    """The module, or None; where it lies, or why there is none."""
    if not WANTED:
        return None, f"SUBCLASS_AOT_NATIVE={_SAID} in the environment"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None, "it needs a Python with a global interpreter lock"
    for folder in _folders():
        file = folder / build.file_name()
        if file.exists():
            loader = importlib.machinery.ExtensionFileLoader("subclass_aot._native._accelerator", str(file))
            spec = importlib.util.spec_from_file_location(loader.name, file, loader=loader)
            assert spec is not None
            try:
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
            except ImportError as error:
                return None, f"{file} cannot be loaded: {error}"
            return module, str(file)
    others = sorted(path.name for folder in _folders() for path in folder.glob("_accelerator-*"))
    why = f"it is not built for torch {torch.__version__} and this version of the library"
    return None, why + (f" (there is {', '.join(others)})" if others else "")


_MODULE, _WHERE = _load()

if _MODULE is None and WANTED and _SAID is not None:
    raise ImportError(_NONE.format(said=_SAID, why=_WHERE))


def accelerator(part: Part) -> Any:
    """The module, if it is there and this part of it is to run; else None.

    Args:
        part: One of `PARTS`.
    """
    return _MODULE if part in WANTED else None


def show_config() -> str:
    """Says which parts run in C++ and which in Python, and why.

    Returns:
        A text of some lines.

    >>> print(show_config().splitlines()[0].split()[0])
    subclass_aot
    """
    from subclass_aot import _native

    version = sys.modules["subclass_aot"].__version__
    exact = "in C" if _native.ONE_CALL_PAYS else "in Python"
    lines = [
        f"subclass_aot {version}, torch {torch.__version__}, Python {sys.version.split()[0]}",
        f"comparing Python objects: {exact}",
    ]
    for part, what in PARTS.items():
        lines.append(f"{part}: {what}: in {'C++' if accelerator(part) is not None else 'Python'}")
    if _MODULE is not None:
        lines.append(f"accelerator: {_WHERE}")
    else:
        lines.append(f"no accelerator: {_WHERE}.\n  To build it: python -m subclass_aot build-native")
    return "\n".join(lines)
