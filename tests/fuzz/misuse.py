"""Random calls of operators that may be wrong: dims, dtypes and sizes that do not fit, caught by the program."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot.engine.compile import aot_compile

CALLS = (
    "F.softmax(x, {dim})", "F.log_softmax(y, {dim})", "x.sort(dim={dim})[0]", "x.cumsum({dim})", "x @ y", "x + y",
    "x - y", "x & y", "torch.maximum(x, y)", "x.erf()", "x.clone().mul_(y)", "torch.where(x > 0, x, y)",
    "x.select_scatter(y, {dim}, 0)", "x.index_select({dim}, y)", "x.index_add({dim}, y, x)", "x.put(y, x)",
    "x.index_put((y.long(),), x)", "F.layer_norm(x, x.shape[-1:], y, y)", "F.linear(x, y)", "F.embedding(y, x)",
    "torch.complex(x, y)", "x.amax({dim})", "x.std({dim})", "torch.heaviside(x, y)", "torch.bucketize(x, y)",
    "x.slice_scatter(y, {dim}, 0, 2)", "F.conv1d(x, y)", "torch.lerp(x, y, 0.5)", "x.clone().pow_(2)",
)  # fmt: skip
"""What is called; indices among the arguments are zero."""

DTYPES = tuple(getattr(torch, name) for name in "bool uint8 int64 float16 bfloat16 float32 float64 complex64".split())


@dataclasses.dataclass(frozen=True)
class DrawnMisuse:
    """A call, and its arguments.

    Attributes:
        call: One of `CALLS`.
        dtypes: Those of `x` and `y`.
        sizes: Theirs.
        dim: Where it asks for one.
        dynamic: Whether sizes are symbols.
    """

    call: str
    dtypes: tuple[torch.dtype, torch.dtype]
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    dim: int = 0
    dynamic: bool = False

    @property
    def lines(self) -> list[str]:
        """What is drawn, as text."""
        return [f"{self.call.format(dim=self.dim)} of {self.dtypes}, {self.sizes}, dynamic={self.dynamic}"]


def misuses() -> st.SearchStrategy[DrawnMisuse]:
    """Draws calls."""
    size = st.lists(st.sampled_from([2, 3]), max_size=3).map(tuple)
    dtype = st.sampled_from(DTYPES)
    return st.builds(
        DrawnMisuse,
        st.sampled_from(CALLS),
        st.tuples(dtype, dtype),
        st.tuples(size, size),
        st.integers(-4, 3),
        st.booleans(),
    ).filter(
        lambda drawn: drawn.call != "x @ y" or not drawn.dynamic
    )  # torch takes it apart by a function with asserts


def check_misuse(drawn: DrawnMisuse, compiler: Callable[[Any], Callable[..., Any]] | None = None) -> bool:
    """Compares what a program catches around a call, compiled and in eager mode.

    Args:
        drawn: The call.
        compiler: Compiles a function; `aot_compile` with "eager" where it is left out.

    Returns:
        True: nothing is refused.

    Raises:
        AssertionError: They differ.
    """
    call = eval(f"lambda x, y: {drawn.call.format(dim=drawn.dim)}", {"torch": torch, "F": torch.nn.functional})

    def program(x: Any, y: Any) -> Any:
        try:
            return call(x, y)
        except Exception as error:
            return type(error).__name__

    def made() -> list[torch.Tensor]:
        pairs = zip(drawn.sizes, drawn.dtypes, strict=True)
        return [torch.zeros(size, dtype=dtype) for size, dtype in pairs]

    compiled = compiler(program) if compiler else aot_compile(program, fw_compiler="eager", dynamic=drawn.dynamic)
    with warnings.catch_warnings(action="ignore"):  # of parts of numbers that are lost
        expected, found = program(*made()), compiled(*made())
    assert type(found) is type(expected), f"{drawn.lines}: {found}, and {expected} in eager mode"
    if isinstance(expected, str):
        assert found == expected, f"{drawn.lines}: {found}, and {expected} in eager mode"
    else:
        torch.testing.assert_close(found, expected, equal_nan=True)
    return True
