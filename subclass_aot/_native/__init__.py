"""What runs on every call, in C and C++ where that is built, and in Python everywhere.

There are two extensions. `exact.c` compares and sets many Python objects at once; it knows nothing of torch, is built at
installation, and `reference.py` is the same in Python. The accelerator (`accelerator/`, in C++) makes wrappers, reads
and compares tensors, and serves operators; it is built for exactly one version of torch. What it stands in for is code
that this library generates, which runs where there is no accelerator and where that has no answer.

Nothing but the time depends on either. `SUBCLASS_AOT_NATIVE` in the environment chooses: `0` is Python alone, `1` wants
the accelerator and fails without it, and names of parts (`recipes,tables`) want only these. `show_config` says what runs.
"""

from __future__ import annotations

from subclass_aot._native.accelerated import PARTS as PARTS
from subclass_aot._native.accelerated import Part as Part
from subclass_aot._native.accelerated import WANTED, accelerator
from subclass_aot._native.accelerated import show_config as show_config
from subclass_aot._native.reference import items_of as items_of

if not WANTED:
    from subclass_aot._native.reference import are_exactly, exactly, have_exactly, hold, same_items

    ONE_CALL_PAYS = False
else:
    try:
        from subclass_aot._native._exact import are_exactly, exactly, have_exactly, hold, same_items

        ONE_CALL_PAYS = True
    except ImportError:
        from subclass_aot._native.reference import are_exactly, exactly, have_exactly, hold, same_items

        ONE_CALL_PAYS = False

"""Whether one call that compares many things is faster than one comparison in generated code for each."""

__all__ = [
    "ONE_CALL_PAYS", "PARTS", "Part", "accelerator", "are_exactly", "exactly", "have_exactly", "hold", "items_of",
    "same_items", "show_config",
]  # fmt: skip
