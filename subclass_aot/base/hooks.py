"""Places where native code stands in for Python.

Each name here is what Python does. Where native code is built and wanted, `subclass_aot.native` puts its own in the
place when the package is imported, before anything reads it. So no room asks for native code: it reads a name of this
module when it generates code, or once when it is imported, and a call pays nothing for the choice. None means that the
room has a way of its own, and takes it.

>>> from subclass_aot import exact, hooks
>>> hooks.hold is exact.hold or hooks.one_call_pays
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subclass_aot.base import exact

at_first_compile: Callable[[], object] | None = None
"""Is called once, by `before_compile`: what begins to build native code where there is none."""

one_call_pays = False
"""Whether one call that compares many things is faster than one comparison in generated code for each."""

exactly: Callable[..., Any] = exact.exactly
are_exactly: Callable[..., bool] = exact.are_exactly
have_exactly: Callable[..., bool] = exact.have_exactly
same_items: Callable[[tuple[Any, ...]], bool] = exact.same_items
hold: Callable[..., None] = exact.hold

read_modes: Callable[[Callable[[], Any]], Callable[[], Any]] | None = None
"""Makes what reads the modes of torch, of what reads them in Python."""

make_recipe: Callable[..., Callable[..., Any]] | None = None
"""Makes what makes wrappers of inner tensors in one call."""

make_table: Callable[..., Callable[..., Any]] | None = None
"""Makes what compares the tensors of a call and reads their leaves."""

make_node: Callable[..., Callable[..., Any]] | None = None
"""Makes what runs a forward, and has autograd run a backward."""

make_run: Callable[..., Callable[[list[Any]], Any]] | None = None
"""Makes what calls operators of a graph in a row."""

kernels: Any = None
"""The code that serves operators on wrappers before Python is called, and caches which results were accepted."""

leaves: Any = None
"""The code that serves operators on tensors without data before Python is called."""

memory: Any = None
"""The code that compares the memory of many tensors in one call, and reads their versions."""

products: Any = None
"""The code that has kernels for products with quantized weights, on processors that have what they need."""


def before_compile() -> None:
    """Has native code be built in the background, the first time that something is compiled."""
    global at_first_compile
    begin, at_first_compile = at_first_compile, None
    if begin is not None:
        begin()
