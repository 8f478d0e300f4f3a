"""Programs that random search found to be wrong once, made small by hand or by `check_compiled`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled


def test_a_view_of_a_view_that_was_turned_in_place() -> None:
    def program(x: Any) -> Any:
        last = x.chunk(2, -1)[-1]
        last.squeeze_()
        return last.chunk(2, -1)[-1], last

    check_compiled(program, [torch.rand(2, 3)])
    check_compiled(program, [torch.rand(3, 2, 3)[1]])
    with pytest.raises(MutationError, match="another view of the same tensor"):
        aot_compile(program)(TwoTensor(torch.rand(2, 3), torch.rand(2, 3)))
