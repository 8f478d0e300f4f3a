"""Parts shared with Dynamo: its guards, its marks, and ways to disable it."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import fx

from subclass_aot.base.put_back import PutBack

_Function = TypeVar("_Function", bound=Callable[..., Any])
_DYNAMO = "torch._dynamo"


def tensor_check(tensors: list[torch.Tensor], sizes: list[list[int | None]], strides: list[list[int | None]]) -> Any:
    """Returns a function that checks class, dispatch keys, dtype, device, sizes and strides of tensors.

    Sizes and strides that are None may be anything.

    It is what Dynamo's guards run: one call into C++ for any number of tensors. When it goes: compare in Python.
    """
    make: Any = torch._C._dynamo.guards.TensorGuards
    return make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def dynamo_inlines(function: Any) -> Callable[[_Function], _Function]:
    """Makes Dynamo trace into the decorated function wherever `function` is called; a run outside costs nothing more.

    Dynamo itself puts this mark on what it makes. When it goes: `torch.compiler.is_dynamo_compiling()` in each call.
    """

    def mark(inlined: _Function) -> _Function:
        function._torchdynamo_inline = inlined
        return inlined

    return mark


def below_dynamo(function: _Function) -> _Function:
    """Has Dynamo compile neither the decorated function nor what that calls, when it runs beside a compiled graph.

    After a graph break operators run in eager mode, and Dynamo takes every Python frame below for one of the program's.
    Nothing is added to a run, unlike by `torch.compiler.disable`. When it goes: that.
    """
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    return function


@contextmanager
def without_dynamo(on_call: Callable[[], object] | None = None) -> Iterator[None]:
    """Runs the block so that functions made by `torch.compile` run as the Python functions that they were made of.

    Args:
        on_call: Is called where one is called.

    Else generated code would be run, or the compiler started, on tensors without data. The stance is public, but is
    the process's, and may not be set where Dynamo is at work; for that, it is switched off on this thread. Dynamo is
    slow to import, and what is not there yet runs nothing: then the stance is set if somebody imports it in the block.

    Backward runs operator by operator, even if a program enabled compiled autograd: that one would take the backward of
    what is traced for one to compile. AOTAutograd, too, switches it off where it traces. It cannot be enabled before
    its module is imported, which is slow. When it goes: nothing.
    """
    set_eval_frame: Any = torch._C._dynamo.eval_frame.set_eval_frame
    before, block = set_eval_frame(None), _Block()
    with (
        PutBack(partial(set_eval_frame, before)),
        PutBack(partial(_leave, block)),
        PutBack(partial(setattr, _of_thread, "on_call", _of_thread.on_call)),
        ExitStack() as stack,
    ):
        _of_thread.on_call = on_call
        if _DYNAMO in sys.modules:
            _enter(block)
        else:  # which another thread may import
            sys.meta_path.insert(0, finder := _Finder(partial(_enter, block)))
            stack.callback(sys.meta_path.remove, finder)
        if (compiled_autograd := sys.modules.get(f"{_DYNAMO}.compiled_autograd")) is not None:
            stack.enter_context(compiled_autograd._disable())
        yield


class _Block:
    """A block without Dynamo. Another thread may be importing it when the block ends."""

    is_over = False


class _OfThread(threading.local):
    """Holds what this thread calls where it calls a function of `torch.compile`."""

    on_call: Callable[[], object] | None = None


_of_thread = _OfThread()
_blocks: list[_Block] = []  # those of threads overlap, and the last one ends the stance
_undo: ExitStack | None = None
_lock = threading.Lock()


def _enter(block: _Block) -> None:
    global _undo
    with _lock:
        if not block.is_over:
            _undo = _undo or _stance()
            _blocks.append(block)


def _leave(block: _Block) -> None:
    global _undo
    with _lock:
        block.is_over = True
        if block in _blocks:
            _blocks.remove(block)
            if not _blocks and _undo is not None:
                _undo.close()
                _undo = None


def _stance() -> ExitStack:
    """Sets the stance of the process, and returns what undoes it.

    Where Dynamo applies it to a function that is called, `on_call` of the thread is called, too. No public name tells
    of such a call. When it goes: a report lacks the line.
    """
    stack = ExitStack()
    stack.enter_context(torch.compiler.set_stance("force_eager"))
    frames: Any = sys.modules[f"{_DYNAMO}.eval_frame"]
    apply = getattr(frames, "_callback_from_stance", None)

    def applied(callback: Any) -> Any:
        if callable(callback) and _of_thread.on_call is not None:
            _of_thread.on_call()
        return apply(callback)  # type: ignore[misc]

    if apply is not None:
        frames._callback_from_stance = applied
        stack.callback(setattr, frames, "_callback_from_stance", apply)
    return stack


class _Finder(MetaPathFinder):
    """Sets the stance when Dynamo has been imported.

    Args:
        enter: Sets it.
    """

    def __init__(self, enter: Callable[[], object]) -> None:
        self._enter = enter

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Finds Dynamo as Python does, and no other module."""
        spec = PathFinder.find_spec(name, path, target) if name == _DYNAMO else None
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self._enter()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def current_solver() -> Any:
    """Returns the `ShapeEnv` of the compilation by `torch.compile` that runs, or None.

    When it goes: that of some symbol.
    """
    context = torch._guards.TracingContext.try_get()
    return None if context is None or context.fake_mode is None else context.fake_mode.shape_env


def current_compilation() -> Any:
    """Returns the compilation by `torch.compile` that runs, by whose number logs are sorted, or None.

    When it goes: None.
    """
    return torch._guards.CompileContext.try_get()


def as_part_of(compilation: Any) -> AbstractContextManager[Any]:
    """Returns a block in which logs belong to what `current_compilation` gave. When it goes: nothing."""
    return torch._guards.compile_context(compilation)


def checkpoint_keywords(kwargs: dict[str, object]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the keywords of an activation checkpoint in a graph of Dynamo: its own ones, and those of its function.

    When it goes: the names that `torch.utils.checkpoint.checkpoint` has.
    """
    from torch._higher_order_ops.wrap import TagActivationCheckpoint

    own, others = TagActivationCheckpoint.divide_kwargs(kwargs)
    return own, others


def context_of_checkpoint(body: fx.GraphModule) -> Any:
    """Returns the `context_fn` of a checkpoint, which Dynamo keeps beside the graph. When it goes: None."""
    return body.meta.get("_checkpoint_context_fn")


def mark_static_address(tensor: torch.Tensor) -> None:
    """Sets torch's own mark for tensors that stay in place.

    Its function is in `torch._dynamo`, which is slow to import.
    """
    tensor._dynamo_static_input_type = "unguarded"  # type: ignore[attr-defined]


def has_static_address(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has the mark that `torch._dynamo.mark_static_address` makes.

    There is no public query.
    """
    return getattr(tensor, "_dynamo_static_input_type", None) is not None


@functools.cache
def _mark_of_results() -> str:
    """Returns the name of the attribute in which AOTAutograd notes on a result of a graph which dims were symbols.

    Dynamo reads it where the result comes into another graph, and has symbols there, too; it guards nothing of it.
    Torches without it have another for that, which `torch._dynamo.maybe_mark_dynamic` sets. When both go: nothing is
    noted, and the next graph is compiled for a size before it is compiled for all.
    """
    from torch._functorch._aot_autograd import runtime_wrappers

    is_there = hasattr(runtime_wrappers, "mark_dynamo_propagated_dynamic_indices")
    return "_dynamo_propagated_dynamic_indices" if is_there else "_dynamo_weak_dynamic_indices"


def mark_result(tensor: torch.Tensor, dims: frozenset[int]) -> None:
    """Notes on a result of a graph which dims were symbols, beside those that are noted already."""
    name = _mark_of_results()
    setattr(tensor, name, {*getattr(tensor, name, ()), *dims})


def dims_marked_in(tensor: torch.Tensor) -> frozenset[int]:
    """Returns the dims that `mark_result`, or AOTAutograd, has noted on a tensor."""
    return frozenset(getattr(tensor, _mark_of_results(), ()))


not_by_dynamo: Any = torch._disable_dynamo  # type: ignore[attr-defined]
"""`torch.compiler.disable` for code that is not run at import: that one imports `torch._dynamo`, which is slow."""


def is_precompiling() -> bool:
    """Returns whether torch wants what a backend returns for a file: `torch.compile(f).aot_compile(...)`.

    Only switches of AOTAutograd say so, which torch sets around the backend, and whose files it wants. When it goes:
    what the backend returns is refused there.
    """
    from torch._functorch import config

    return bool(config.bundled_autograd_cache and getattr(config, "bypass_autograd_cache_key", False))


def serializable_callable() -> Any:
    """Returns the class that torch wants there of what a backend returns. It comes with Dynamo."""
    from torch._dynamo.aot_compile_types import SerializableCallable

    return SerializableCallable
