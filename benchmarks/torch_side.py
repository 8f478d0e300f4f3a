"""What torch does in the same place. The only file here that touches private names of torch.

The benchmarks are made for torch 2.13. They run with the others, too: with 2.11, which generates no code for wrappers,
without the rows that compare with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd import subclass_utils
from torch.testing._internal.two_tensor import TwoTensor as TwoTensor

try:
    from torch._functorch._aot_autograd import subclass_codegen
except ImportError:
    subclass_codegen = None  # type: ignore[assignment]

generated: Any = subclass_codegen
"""Torch's generator of code for wrappers, or None where torch has none."""

Metas = list[Any]


def metas_of(values: Sequence[Any]) -> Metas:
    """Torch's description of values, as AOTAutograd has it when a compiled function runs.

    Args:
        values: Wrappers of fake tensors: torch takes no others, since its description holds on to them while it traces.
    """
    metas: Metas = subclass_utils.create_subclass_meta(list(values))
    for meta in metas:
        meta.make_runtime_safe()
    return metas


def unwrap_in_a_loop(metas: Metas) -> Callable[[Any], Any]:
    """The function that walks values and metas on every call."""
    read = subclass_utils.runtime_unwrap_tensor_subclasses
    return lambda values: read(values, append_symints=True, subclass_metas=metas)


def wrap_in_a_loop(metas: Metas) -> Callable[[Any], Any]:
    """The function that walks leaves and metas on every call."""
    make = subclass_utils.wrap_tensor_subclasses
    return lambda leaves: make(leaves, subclass_metas=metas, included_subclass_symints=True, is_runtime=True)


def unwrap_generated(metas: Metas) -> Callable[[Any], Any]:
    """The unwrapping lines of torch's generated wrapper, as a function of their own."""
    state = generated.PySourceBuilder() if hasattr(generated, "PySourceBuilder") else generated._CodegenState()
    state.emit("def unwrap(args):", indent=0)
    state.emit("unwrapped_args = []")
    generated._emit_input_unwrapping(state, metas)
    state.emit("return unwrapped_args")
    source = state.getvalue() if hasattr(state, "getvalue") else "\n".join(state.lines)
    return generated._compile_and_exec_source(source, state.globals, "unwrap", "unwrap")


def wrap_generated(metas: Metas) -> Callable[[Any], Any]:
    """The function that torch generates to wrap gradients; forward's wrapping consists of the same lines."""
    wrap = generated.codegen_backward_subclass_fns(metas)[1]
    assert wrap is not None
    return wrap


def unwrap_and_wrap_generated(metas: Metas) -> Callable[[Any], Any]:
    """Torch's generated wrapper around a compiled function that returns its inputs. Empties the list it is given."""
    return generated.codegen_subclass_wrapper(lambda leaves: leaves, metas, metas, None)


def backend_of(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """The backend of `torch.compile` that runs AOTAutograd with a compiler of dense graphs, forward and backward."""
    backend: Callable[..., Any] = aot_autograd(fw_compiler=compiler, bw_compiler=compiler)
    return backend
