"""Arguments that are given as `out=` and get the size of the result, as in eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.errors import MutationError

pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")

PROGRAMS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "mm": lambda x, y, out, i: torch.mm(x, y, out=out) * 2,
    "in strides of the operands": lambda x, y, out, i: torch.add(x.t(), y.t(), out=out),
    "two results": lambda x, y, out, i: torch.max(x, 0, out=(out, i)),
    "sort": lambda x, y, out, i: torch.sort(x, out=(out, i)),
    "twice": lambda x, y, out, i: (torch.mm(x, y, out=out).sum(), torch.amax(x, 0, out=out))[0] * 2,
    "read afterwards": lambda x, y, out, i: (torch.cat([x, y], out=out), out * 2, out.sum())[1:],
    "written afterwards": lambda x, y, out, i: torch.matmul(x, y, out=out).add_(1).t(),
    "composite": lambda x, y, out, i: torch.linalg.inv(x + 4 * torch.eye(4), out=out) + 1,
    "under grad": lambda x, y, out, i: torch.stack([x, y], out=out) + x,
}


@pytest.mark.every_case
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size", [(0,), (2,), (9, 9)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str, size: tuple[int, ...], dynamic: bool) -> None:
    program = PROGRAMS[name]
    compiled = aot_compile(program, dynamic=dynamic)
    x, y = torch.rand(4, 4), torch.rand(4, 4)
    x.requires_grad_(name == "under grad")
    for _ in range(2):
        found = []
        for function in (program, compiled):
            out, i = torch.ones(size), torch.zeros(size, dtype=torch.int64)
            with torch.no_grad() if name == "under grad" else torch.enable_grad():
                results = function(x, y, out, i)
            results = results if isinstance(results, tuple) else (results,)
            assert out._version > 0, "autograd has to know that it was written"
            found.append([*results, out, i])
        assert [(t.shape, t.stride()) for t in found[0]] == [(t.shape, t.stride()) for t in found[1]]
        torch.testing.assert_close(*found)


def of_a_parameter(x: Any) -> Any:
    with torch.no_grad():
        return torch.mm(torch.ones(2, 2), torch.ones(2, 1), out=x.requires_grad_())


REFUSED = {
    "read as well": lambda x: torch.mm(x, x[:, :1], out=x),
    "a view of it is read": lambda x: torch.add(x[None, :1], 1, out=x),
    "a view": lambda x: torch.add(torch.ones(3, 3), 1, out=x[:1]),
    "it requires grad": of_a_parameter,
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    x = torch.rand(2, 2)
    with pytest.raises(MutationError):
        aot_compile(REFUSED[name])(x)
    assert x.shape == (2, 2)
