"""What AOTAutograd has made a rule, and calls by names that begin with an underscore."""

from __future__ import annotations

from typing import Any


def descriptors() -> Any:
    """AOTAutograd's own descriptors of graph inputs and outputs, for tools that read them. It has no public name."""
    from torch._functorch._aot_autograd import descriptors as torchs

    return torchs


BOXED = "_boxed_call"
"""The attribute by which a function says whether it takes its arguments as one list, which AOTAutograd made a rule."""
