"""Two tensors that every operator treats alike: the smallest wrapper, and the one to test compilers with."""

from __future__ import annotations

import torch

from subclass_aot.kit.wrapper import WrapperTensor


class TwoTensor(WrapperTensor, fallback="each"):
    """Two tensors of one shape; has the metadata of the first, and every operator runs on both.

    >>> TwoTensor(torch.zeros(2), torch.ones(2)).add(1).b
    tensor([2., 2.])
    """

    a: torch.Tensor
    b: torch.Tensor
