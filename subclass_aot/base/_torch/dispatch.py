"""Modes that see operators, and modes and transforms that see calls of torch."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from subclass_aot.base.put_back import PutBack

disable_current_modes: Any = torch.utils._python_dispatch._disable_current_modes
"""Runs a block outside every dispatch mode, so that the user's own modes do not see shape inference. No public form."""

current_dispatch_mode: Callable[[], Any] = torch.utils._python_dispatch._get_current_dispatch_mode
"""The mode that sees an operator first. No public form."""

count_dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
"""Says how many dispatch modes this thread is in. No public form."""

dispatch_modes: Callable[[], list[Any]] = torch.utils._python_dispatch._get_current_dispatch_mode_stack
"""The dispatch modes of this thread, innermost last. Only the innermost one has a name, and that is private, too."""


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):
    """A dispatch mode whose handler is called as it is.

    Torch wraps the handler of every mode so that Dynamo does not look into it, at some microseconds per operator and
    an import of Dynamo. Traces run outside Dynamo, so ours is not wrapped. When the switch goes: derive from the base.

    Torch remembers in three flags of the process that a mode is on, and each mode puts back what it found: with two
    that overlap in time on two threads, they stay on, and `torch.compile` compiles nothing any more. So the flags are
    left alone while one of ours is on, and put back by the last.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    # A signal may come in the middle of either. A mode that stays on for good would see all that the process does.

    def __enter__(self) -> Any:
        depth = torch._C._len_torch_dispatch_stack()
        try:
            with _flags_of_modes.lock:
                _flags_of_modes.enter(depth)
                return super().__enter__()  # type: ignore[no-untyped-call]
        except BaseException:
            self._throw_away(depth)
            raise

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None and not any(mode is self for mode in dispatch_modes()):
            return  # a signal came where torch had taken all modes off: see `modes_put_back`
        depth = torch._C._len_torch_dispatch_stack() - 1
        try:
            with _flags_of_modes.lock:
                before = _flags_of_modes.read()
                super().__exit__(kind, *error)  # type: ignore[no-untyped-call]
                _flags_of_modes.leave(depth, before)
        except BaseException:
            self._throw_away(depth)
            raise

    def _throw_away(self, depth: int) -> None:
        """Pops the mode off the stack where leaving it was interrupted, unless it was popped already.

        Args:
            depth: How many modes are to remain.
        """
        with _flags_of_modes.lock:
            before = _flags_of_modes.read()
            if torch._C._len_torch_dispatch_stack() > depth:
                torch.utils._python_dispatch._pop_mode(getattr(self, "_mode_key", None))
            _flags_of_modes.leave(depth, before)


class _FlagsOfModes:
    """The flags that `torch.utils._python_dispatch` shows to all threads while modes of ours are on. Hold its lock."""

    _NAMES = (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    )

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._on: set[tuple[int, int]] = set()  # by thread, and by how many modes were on before
        self._before: dict[str, bool] = {}

    def read(self) -> dict[str, bool]:
        return {name: getattr(torch.utils._python_dispatch, name) for name in self._NAMES}

    def enter(self, depth: int) -> None:
        if not self._on:
            self._before = self.read()
        self._on.add((threading.get_ident(), depth))

    def leave(self, depth: int, flags: dict[str, bool]) -> None:
        """Puts the flags as they were before the first mode, or leaves them as they are while there are others."""
        key = threading.get_ident(), depth
        if key not in self._on:  # it did not come to `enter`, or has left
            return
        for name, value in (flags if self._on - {key} else self._before).items():
            setattr(torch.utils._python_dispatch, name, value)
        self._on.discard(key)
        if not torch._C._len_torch_dispatch_stack():  # this flag is the thread's
            torch._C._dynamo.guards.set_is_in_mode_without_ignore_compile_internals(False)


_flags_of_modes = _FlagsOfModes()


def leave_all_modes() -> None:
    """Removes all dispatch modes of this thread, innermost first, where a signal kept them from being left singly."""
    with _flags_of_modes.lock:
        before = _flags_of_modes.read()
        for depth in reversed(range(torch._C._len_torch_dispatch_stack())):
            mode = torch._C._get_dispatch_stack_at(depth)
            torch.utils._python_dispatch._pop_mode(getattr(mode, "_mode_key", None))
            _flags_of_modes.leave(depth, before)


class PassOn(DispatchMode):
    """A dispatch mode that does nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class ConjugatesAtOnce(PassOn):
    """A dispatch mode in which conjugates have values of their own.

    Else they are a bit, which classes of others forget. There is no public form: `torch.conj` of a complex tensor is
    always a view, and what `_conj` calls it is in no list of operators.
    """

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        at_once = torch.ops.aten.conj_physical.default if func is torch.ops.aten._conj.default else func
        return super().__torch_dispatch__(at_once, types, args, kwargs)


_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_set_excluded = torch._C._dispatch_tls_set_dispatch_key_excluded


def resolving_conj_and_neg(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, changed so that within it the dispatcher resolves `x.conj()` and `x.conj().imag`.

    They are bits on tensors that share memory with `x`, and the dispatcher handles them before it calls classes. Below
    that, in a `__torch_dispatch__`, it handles them no more, and kernels take the memory as it is. There is no public
    form; when it goes, what authors write in rules has to resolve such tensors itself.

    It is on the way of each operator, and needs no `PutBack`: the caller of `__torch_dispatch__` in torch excludes
    these keys and takes that back when it is left, whatever is set by then.
    """
    conjugate, negative = torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative

    @functools.wraps(function)
    def resolving(*args: object, **kwargs: object) -> Any:
        if not _is_excluded(conjugate):
            return function(*args, **kwargs)
        _set_excluded(conjugate, False)
        _set_excluded(negative, False)
        try:
            return function(*args, **kwargs)
        finally:
            _set_excluded(conjugate, True)
            _set_excluded(negative, True)

    return resolving


def decomposition(func: OpOverload) -> Callable[..., Any]:
    """Returns what a composite operator is made of; views in it share the version counters of what they are views of.

    The dispatcher does that before it calls classes, and not again below; only for some composite operators does it
    so for the whole of them. There is no public form; when it goes, what inference mode writes into `x.reshape(-1)`
    does not count as a write of `x`.
    """
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView"):
        return func.decompose
    key = torch._C.DispatchKey.ADInplaceOrView

    @functools.wraps(func.decompose)
    def decompose(*args: object, **kwargs: object) -> Any:
        if not _is_excluded(key):
            return func.decompose(*args, **kwargs)
        with PutBack(partial(_set_excluded, key, True)):
            _set_excluded(key, False)
            return func.decompose(*args, **kwargs)

    return decompose


def python_dispatcher() -> Any:
    """Lets shape functions written in Python go before those in C++, which take no symbolic sizes."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()


def no_python_dispatcher() -> Any:
    """Has shape functions written in C++ serve operators on sizes that are numbers: they take less time."""
    from torch._dispatch.python import no_python_dispatcher

    return no_python_dispatcher()


disable_torch_function: Any = torch._C.DisableTorchFunction
"""While it lives, no mode and no class sees calls of torch. The public form keeps the modes."""

number_of_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
"""How many modes see what a program calls in torch: a default device is one. When it goes: the length of the stack."""


def function_modes() -> tuple[Any, ...]:
    """Returns what describes the modes that see calls of torch: devices for those that set one, others as they are."""
    from torch.utils._device import DeviceContext

    modes = torch.overrides._get_current_function_mode_stack()
    return tuple(mode.device if type(mode) is DeviceContext else mode for mode in modes)


@contextmanager
def without_function_modes() -> Iterator[None]:
    """Runs the block so that no mode sees calls of torch. The public way takes off one mode, and is for its author.

    When it goes: `torch.overrides` has to offer the stack, which it keeps.
    """
    with ExitStack() as stack:
        for _ in range(number_of_function_modes()):
            stack.enter_context(torch.overrides._pop_mode_temporarily())
        yield


def inside_transform() -> bool:
    """Returns whether `torch.func` (`grad`, `vmap`, ...) or forward-mode autograd is at work.

    Torch has no public query.
    """
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def without_transforms() -> Any:
    """Runs a block outside `torch.func`: operators there mean what they say. The public way does not exist."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def as_functional(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor as `torch.func.functionalize` has its inputs, for the one that runs.

    Of tensors that are no inputs it sees nothing, and operators on these alone stay as they are, writes too. When it
    goes: they become inputs.
    """
    functorch: Any = torch._C._functorch
    wrapped: torch.Tensor = functorch._wrap_functional_tensor(tensor, functorch.maybe_current_level())
    return wrapped


TRACERS = ("torch.fx.", "torch._subclasses.", "torch._functorch.", "torch._dynamo.", "torch.export.")
"""The modules of torch's tracers, by how their names begin: what these raise, they say of themselves. When one moves:
what it raises is said of the class that was traced."""
