"""Code that runs on every call: in C and C++ where that is built, and in Python everywhere.

There are two extensions. `exact.c` compares and sets many Python objects at once; it knows nothing of torch, and
`reference.py` is the same in Python. The accelerator (`accelerator/`, in C++) reads and compares tensors, and makes
wrappers; it is built for exactly one version of torch. What it stands in for is code that this library generates, which
runs where there is no accelerator and where that has no answer.

Nothing but the time depends on either. `SUBCLASS_AOT_NATIVE` in the environment chooses: `0` is Python alone, `1` is
all and fails where there is no accelerator, and names of parts (`exact,recipes`) are these. `show_config` says what
runs.
"""

from __future__ import annotations

from subclass_aot._native.accelerated import WANTED, accelerator, offer_exact, show_config
from subclass_aot._native.cache import build_accelerator, build_exact
from subclass_aot._native.reference import items_of

__all__ = [
    "ONE_CALL_PAYS", "accelerator", "are_exactly", "build_accelerator", "build_exact", "exactly", "have_exactly",
    "hold", "items_of", "same_items", "show_config",
]  # fmt: skip

if "exact" not in WANTED:
    from subclass_aot._native.reference import are_exactly, exactly, have_exactly, hold, same_items

    ONE_CALL_PAYS = False
else:
    offer_exact()
    try:
        from subclass_aot._native._exact import are_exactly, exactly, have_exactly, hold, same_items

        ONE_CALL_PAYS = True
    except ImportError:
        from subclass_aot._native.reference import are_exactly, exactly, have_exactly, hold, same_items

        ONE_CALL_PAYS = False

"""Whether one call that compares many things is faster than one comparison in generated code for each."""
