"""Code that runs on every call: in C and C++ where that is built, and in Python everywhere.

There are two extensions. `exact.c` compares and sets many Python objects at once; it knows nothing of torch, and
`base/exact.py` is the same in Python. The accelerator (`accelerator/`, in C++) reads and compares tensors, and
makes wrappers; it is built for exactly one version of torch. What it stands in for is code that this library generates,
which runs where there is no accelerator and where that has no answer. Both go into the places of `hooks.py` when the
package is imported.

Nothing but the time depends on either, up to the order of sums in `products`. `SUBCLASS_AOT_NATIVE` in the environment
chooses: `0` is Python alone, `1` is all and fails where there is no accelerator, and names of parts (`exact,recipes`)
are these. `show_config` says what runs. Where nothing chose and there is no accelerator, the first compilation has it
be built (`background.py`).
"""

from __future__ import annotations

from types import ModuleType

from subclass_aot.base import exact, hooks
from subclass_aot.native import background
from subclass_aot.native.accelerated import PARTS, WANTED, Part, accelerator, offer_exact, show_config
from subclass_aot.native.cache import build_accelerator, build_exact

__all__ = ["accelerator", "build_accelerator", "build_exact", "put_in_place", "show_config"]

_HOOKS: dict[Part, tuple[str, str]] = {
    "modes": ("read_modes", "Modes"), "recipes": ("make_recipe", "Recipe"), "tables": ("make_table", "Table"),
    "nodes": ("make_node", "Function"), "graphs": ("make_run", "Run"), "kernels": ("kernels", ""),
    "leaves": ("leaves", ""), "memory": ("memory", ""),
}  # fmt: skip
"""For each part of the accelerator, its place in `hooks`, and the class that goes there; else all of it."""


def put_in_place(part: Part, module: ModuleType | None) -> None:
    """Has a part run natively, or in Python.

    Args:
        part: The part.
        module: The accelerator; for `"exact"`, the extension in C. None has Python run.
    """
    if part == "exact":
        for name in ("exactly", "are_exactly", "have_exactly", "same_items", "hold"):
            setattr(hooks, name, getattr(exact if module is None else module, name))
        hooks.one_call_pays = module is not None
        return
    if part == "products":
        hooks.products = module if module is not None and module.install_products() else None
        return
    name, of = _HOOKS[part]
    setattr(hooks, name, module if module is None or not of else getattr(module, of))


def _extension() -> ModuleType | None:
    """Returns the extension in C, if it is there and wanted."""
    if "exact" not in WANTED:
        return None
    offer_exact()
    try:
        from subclass_aot.native import _exact

        return _exact
    except ImportError:
        return None


for _part in PARTS:
    put_in_place(_part, _extension() if _part == "exact" else accelerator(_part))
if WANTED and accelerator("modes") is None:
    hooks.at_first_compile = background.begin
