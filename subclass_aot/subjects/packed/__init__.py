"""Packed sequences, and recurrent layers that get them."""

import subclass_aot.subjects.packed.sequences  # noqa: F401  # which fills the places
