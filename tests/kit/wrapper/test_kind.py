"""When the program runs, a wrapper class derives from `torch.Tensor`, and nothing else stands between."""

from __future__ import annotations

import torch

import subclass_aot as sa
from subclass_aot.kit.wrapper.kind import Wrapper


def test_it_is_for_type_checkers_alone() -> None:
    assert Wrapper is torch.Tensor and sa.WrapperTensor.__bases__ == (torch.Tensor,)
