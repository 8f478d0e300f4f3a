"""Small functions in C, and the same in Python.

The extension is built at installation where there is a C compiler, and without one the installation goes on quietly.
`SUBCLASS_AOT_NATIVE=0` in the environment chooses Python all the same. Nothing but the time depends on it.
"""

from __future__ import annotations

import os

from subclass_aot._native.reference import items_of

__all__ = ["ONE_CALL_PAYS", "are_exactly", "exactly", "have_exactly", "hold", "items_of", "same_items"]

if os.environ.get("SUBCLASS_AOT_NATIVE") == "0":
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
