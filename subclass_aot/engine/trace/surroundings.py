"""Disables the user's modes, hooks and Dynamo while tracing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from subclass_aot.base import _torch
from subclass_aot.base._stack import is_raised_by_user, user_line_of
from subclass_aot.engine.call import reads_are_refused
from subclass_aot.engine.graph import Recorder, messages
from subclass_aot.engine.structures import structures_in
from subclass_aot.engine.trace import numbers
from subclass_aot.engine.trace.autograd_graph import without_saved_tensor_hooks
from subclass_aot.engine.trace.composites import COMPOSITES
from subclass_aot.engine.trace.inputs import InputPlan
from subclass_aot.errors import MutationError, SubclassAotError
from subclass_aot.meta.symbols import unbacked_sizes


@contextmanager
def recording(plan: InputPlan, recorder: Recorder) -> Iterator[None]:
    """Runs the block, and records its operators.

    Raises:
        MutationError: One fails since the metadata of a tensor was mutated that it is a view of.
    """
    try:
        with (
            _surroundings(plan, recorder),
            recorder.listeners.random_numbers.kept(recorder),
            recorder,
            _torch.autograd.force_view_tracking(True),
        ):
            yield
    except (RuntimeError, ValueError, IndexError) as error:
        if isinstance(error, SubclassAotError) or not recorder.mutations.metadata or is_raised_by_user(error):
            raise
        reason = str(error).splitlines()[0]
        raise MutationError(messages.VIEW_OF_MUTATED_BEFORE.format(reason=reason, line=user_line_of(error))) from error


@contextmanager
def with_symbols(plan: InputPlan) -> Iterator[None]:
    """Runs the block so that operators take symbolic sizes, and may make data-dependent numbers, if there are symbols.

    See Note [Composite operators with symbolic sizes].
    """
    if plan.symbols is None:
        with unbacked_sizes(None):
            yield
    else:
        with (
            unbacked_sizes(plan.symbols),
            _torch.dispatch.python_dispatcher(),
            _torch.python_kernels.python_kernels(COMPOSITES),
            _torch.symbolic.quiet_about_unknowns(),
            plan.symbols.within_budget(),
        ):
            yield


@contextmanager
def _surroundings(plan: InputPlan, recorder: Recorder) -> Iterator[None]:
    """Runs the block with the user's modes, hooks and Dynamo disabled: nothing gets into the trace or out of it."""
    annotations = recorder.listeners.annotations
    looks = recorder.listeners.looks  # without them there is no call whose numbers could be read
    with (
        _structures(plan) if plan.structure else _NOTHING,
        _torch.stand_ins.stand_ins(),
        _torch.dynamo.without_dynamo(),
        _NOTHING if looks is None else _torch.optimizers.steps_as_in_eager_mode(),
        annotations.of_modules() if annotations.of_any_module else _NOTHING,
        with_symbols(plan),
        _NOTHING if plan.symbols is None else numbers.program(looks is not None),
        reads_are_refused(),
        without_saved_tensor_hooks(),
    ):
        yield


@contextmanager
def _structures(plan: InputPlan) -> Iterator[None]:
    """Runs the block in what classes ask for whose tensors share a structure."""
    kinds = {type(structure): structure for structure in structures_in(plan.flatten.metas).values()}
    with ExitStack() as stack:
        for structure in kinds.values():
            stack.enter_context(structure.around())
        yield


_NOTHING = nullcontext()
