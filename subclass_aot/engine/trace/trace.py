"""Attempts to trace a call: what is tried after one that failed. Nobody else tries again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.graph import Retrace
from subclass_aot.engine.tables import Gradients
from subclass_aot.engine.trace import numbers
from subclass_aot.engine.trace.attempt import Attempt
from subclass_aot.engine.trace.handlers import Abandoned, handlers_run, handlers_wait, with_handlers_waiting
from subclass_aot.engine.trace.joint import JointTrace, trace_once
from subclass_aot.engine.trace.threads import is_tracing, now_tracing, one_at_a_time
from subclass_aot.meta.symbols import NoAnswer, SizesMustBeKnown

_T = TypeVar("_T")


Begin = Callable[[Gradients, BaseException | None], Attempt | None]
"""Makes an attempt of which no more is known than of which inputs the `.grad` belongs to the call, and what the
function or a compiler raised before; None if there is no such attempt."""


def specialize(begin: Begin, build: Callable[[Attempt], _T]) -> _T:
    """Builds something of a call that is traced, in as many attempts as it takes until it is known how.

    The function of the user runs once, and again only where it turns out that the trace needs other options, as in
    Note [Views of one tensor].

    Args:
        begin: Makes the first attempt, and others that begin from nothing.
        build: Makes of an attempt what is wanted.
    """
    with handlers_wait():
        return _specialize(begin, build)


def _specialize(begin: Begin, build: Callable[[Attempt], _T]) -> _T:
    before = handlers_run()
    after = begin(Gradients.NONE, None)
    assert after is not None
    while True:
        attempt = dataclasses.replace(after, handlers=before)
        try:
            return build(attempt)
        except Abandoned:
            if is_tracing():  # it is the trace around that is abandoned
                raise
            before = handlers_run()
            after = begin(attempt.arguments.with_grad, attempt.failure) or attempt
        except NoAnswer as found:
            after = attempt.after(found)
            if {*found.paths}.intersection(attempt.arguments.changing):  # numbers of Python, which begin from nothing
                error = RuntimeError(str(found))
                error.__cause__ = found
                before = handlers_run()
                after = begin(attempt.arguments.with_grad, error)
            if after is None:
                raise
        except (SizesMustBeKnown, Retrace) as found:
            after = attempt.after(found)
            known = attempt.arguments.with_grad
            if after.options.with_grad and known != Gradients.OF_ALL:
                before = handlers_run()
                after = begin(Gradients(max(after.options.with_grad, known + 1)), attempt.failure)
            if after is None:
                raise
        except Exception as error:  # of the function's, or of a compiler's
            pass_on_interruption(error)
            before = handlers_run()
            after = None if attempt.failure is not None else begin(attempt.arguments.with_grad, error)
            if after is None:
                raise
            error.with_traceback(None)  # which would hold the tensors of this attempt


def trace_arguments(
    fn: Callable[..., Any], attempt: Attempt, decompositions: Mapping[Any, Callable[..., Any]] | None = None
) -> JointTrace:
    """Traces `fn` on a call that was flattened already, in one attempt.

    The function runs on tensors without data; nothing of the user's is changed.

    Args:
        fn: What is traced.
        attempt: The call, and how it is traced.
        decompositions: Operators to replace.

    Raises:
        Abandoned: It takes another attempt.
        Retrace: It takes another attempt.
        SizesMustBeKnown: It takes another attempt.
    """
    # In a copy of the context: what the function sets in context variables is gone with it.
    return with_handlers_waiting(partial(copy_context().run, _trace_arguments, fn, attempt, decompositions))


def _trace_arguments(
    fn: Callable[..., Any], attempt: Attempt, decompositions: Mapping[Any, Callable[..., Any]] | None
) -> JointTrace:
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    options, values = attempt.options, attempt.values
    if values is not None:
        values.at_branches = options.looks_at_branches
        values.fixed = values.fixed or options.values_fix_sizes
    hashes: numbers.Hashes | None = None  # those of symbols
    with one_at_a_time, PutBack(_torch.modes.modes_put_back()), PutBack(partial(now_tracing, is_tracing())):
        now_tracing(True)
        if handlers_run() != attempt.handlers:
            raise Abandoned
        try:
            with (
                torch.inference_mode(False),
                torch.set_grad_enabled(grad),  # inference mode switched it on, the function may switch it
                torch.autograd.set_multithreading_enabled(False),  # else what a GPU computes goes backward in a thread
                nullcontext() if attempt.sizes is None else numbers.attempt(options.hashes_by_value) as hashes,
            ):
                return trace_once(fn, attempt, decompositions, inference)
        except Exception as error:  # of the function's, which read a hash
            pass_on_interruption(error)
            if hashes is None or not hashes.refused:
                raise
            raise Retrace(hashes_by_value=True) from error
