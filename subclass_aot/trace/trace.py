"""Tracing a call, once or as often as it takes until it is known how."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption
from subclass_aot.call import Arguments
from subclass_aot.graph import Looks, Retrace, TraceOptions
from subclass_aot.sizes import DynamicSizes, GivenSizes
from subclass_aot.symbols import SizesMustBeKnown
from subclass_aot.trace.joint import JointTrace, trace_once
from subclass_aot.trace.text import Hashes
from subclass_aot.trace.threads import is_tracing, now_tracing, one_at_a_time


def trace_arguments(
    fn: Callable[..., Any],
    arguments: Arguments,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic: DynamicSizes | GivenSizes | None = None,
    values: Looks | None = None,
) -> JointTrace:
    """Traces `fn` on a call that was flattened already.

    The function runs on tensors without data; nothing of the user's is changed. It runs once, and again only where it
    turns out that the trace needs other options, as in Note [Views of one tensor].

    Args:
        fn: What is traced.
        arguments: The call.
        decompositions: Operators to replace.
        dynamic: Which sizes are symbols; None if every number must be known, those that depend on data too.
        values: Answers where the function reads values; None if it may not.

    Raises:
        Retrace: The call has to be flattened in another way, with the gradients of its inputs.
    """
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    outer = is_tracing()
    options = TraceOptions(with_grad=arguments.with_grad)
    with one_at_a_time, _torch.EnteredModes(), torch.inference_mode(False):
        while True:
            hashes = Hashes(options.hashes_by_value)
            try:
                now_tracing(True)
                kernels = nullcontext() if options.fused_lstm else _torch.without_mkldnn()
                with (
                    torch.set_grad_enabled(grad),
                    kernels,
                    hashes,
                ):  # inference mode switched it on, the function may switch it
                    call = arguments.with_views(options.views)
                    return trace_once(fn, call, decompositions, inference, dynamic, values)
            except SizesMustBeKnown as found:
                if dynamic:
                    dynamic = dynamic.without(found.paths)
                else:  # those that depend on data: the call tells them, or the operator that makes them is refused
                    assert dynamic is not None, "a trace without symbolic sizes has known ones"
                    dynamic, options = None, dataclasses.replace(options, data_dependent_sizes=False)
                    if values is not None:
                        values.fixed = True
            except Retrace as found:
                options = found.options(options)
                if options.with_grad and not arguments.with_grad:
                    raise
                if values is not None:
                    values.at_branches = options.looks_at_branches
                if options.data_dependent_sizes and dynamic is None:
                    dynamic = DynamicSizes()
                if options.views and dynamic is not None:  # see Note [Views of one tensor]
                    joined = arguments.with_views(options.views)
                    dynamic = dynamic.without({*options.views, *map(joined.path_of, joined.view_of)})
            except Exception as error:  # of the function's, which read a hash
                pass_on_interruption(error)
                if not hashes.refused:
                    raise
                options = dataclasses.replace(options, hashes_by_value=True)
            finally:
                now_tracing(outer)
