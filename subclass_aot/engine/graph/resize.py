"""`resize_` and `resize_as_` in a graph.

Note [Resized tensors]
~~~~~~~~~~~~~~~~~~~~~~
`resize_` gives a tensor another size in the memory that it has, and more memory if that is too little: its storage, and
with it that of all views, grows and keeps what is in it. A trace knows in the end how large each storage became. So in
the graph without mutations a tensor that is resized, or of which a view is, lies in a flat one from the beginning,
which is as large as it will be, and each new size is a view of that. For an input this is its base (see Note [Shared
storage]), and the call makes its storage larger before the graph runs; afterwards it does to the input what the program
did.
"""

from __future__ import annotations

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.kit.views import Step
from subclass_aot.meta import Spec

RESIZED_DTYPE = """A view of another type than that of the tensor behind it is given another size.
  Operator:   {operator}
  Your line:  {line}
  The types:  {before}, seen as {after}
  Instead: resize the tensor itself, or make a new one."""

RESIZE_AS = torch.ops.aten.resize_as_.default
RESIZES = frozenset({torch.ops.aten.resize_.default, RESIZE_AS})


def resize_like(template: torch.Tensor, *, memory_format: torch.memory_format | None = None) -> Step:
    """Returns what `resize_as_` does without its template."""
    if memory_format is torch.preserve_format:
        memory_format = torch.contiguous_format
        if _torch.inductor.looks_channels_last(template):
            memory_format = torch.channels_last if template.dim() == 4 else torch.channels_last_3d
    return Step(torch.ops.aten.resize_.default, (tuple(template.shape),), (("memory_format", memory_format),))


def with_capacity(value: torch.Tensor, spec: Spec, extent: int) -> torch.Tensor:
    """Returns a flat tensor of `extent` elements that has those of a new tensor where they are in its storage."""
    flat = value.new_empty(extent)
    flat.as_strided(spec.size, spec.stride, spec.offset).copy_(value)
    return flat


def resized_by(node: fx.Node) -> fx.Node | None:
    """Returns the tensor that a node gives another size, as `resize_` does and operators with `out=` may."""
    if resizes(node):
        return node.args[0]  # type: ignore[return-value]
    out = node.kwargs.get("out")
    return out if isinstance(out, fx.Node) and "spec" in node.meta else None


def resizes(node: fx.Node) -> bool:
    """Returns whether a node gives a tensor another size in place."""
    return node.target in RESIZES
