"""Version counters of a tensor and of the tensors inside it.

A write through a wrapper moves the wrapper's counter only: its inner tensors are written below autograd. A write to an
inner tensor by its own name moves that tensor's counter only.
"""

from __future__ import annotations

import torch

from subclass_aot.base import _torch
from subclass_aot.kit.flatten import InnerMeta, walk


def versions(tensor: torch.Tensor, meta: InnerMeta) -> dict[str, int]:
    """Returns the version of every tensor in a tree, by the path that leads to it; the outermost is at `""`.

    >>> import torch
    >>> from subclass_aot.kit.flatten import PlainTensorMeta
    >>> versions(torch.ones(2).mul_(2), PlainTensorMeta(0))
    {'': 1}
    """
    return {
        path: _torch.autograd.version_of(part) for path, part, _ in walk(tensor, meta) if isinstance(part, torch.Tensor)
    }
