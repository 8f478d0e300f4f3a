"""Sizes that kernels refuse, and torch's rules for shapes take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor

x, ints = torch.ones(4, 4), torch.ones(4, 4, dtype=torch.int64)

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "slice_scatter": lambda x, i: torch.slice_scatter(x, x, 0, 0, 2),
    "select_scatter": lambda x, i: x.select_scatter(x[:3, 0], 0, 0),
    "index_add": lambda x, i: x.index_add(0, i[0], x[:, :2]),
    "index_add of a matrix": lambda x, i: x.index_add(0, i, x),
    "index_put": lambda x, i: x.index_put((i[0],), x[:3, :3]),
    "addmm": lambda x, i: torch.addmm(x[:3], x, x),
    "multinomial": lambda x, i: torch.multinomial(x, 5),
    "lstsq": lambda x, i: torch.linalg.lstsq(x[0], x),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", CALLS)
def test_the_error_of_the_kernel(name: str) -> None:
    with pytest.raises(Exception, match=r".") as expected:
        CALLS[name](x, ints)
    given = MetaTensor(x), MetaTensor(ints)
    with pytest.raises(type(expected.value)):
        CALLS[name](*given)
