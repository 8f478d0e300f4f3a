"""Facts that autograd keeps of tensors, views and gradient functions."""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch

from subclass_aot.base.put_back import PutBack


def last_sequence_number() -> int:
    """Returns the number that autograd gave to its newest gradient function; it pairs backward operators with
    forward lines.
    """
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]


def sequence_number_of_current_gradient() -> int:
    """Returns the number of the gradient function that runs now, or -1. The engine has no public query for it."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def name_of(node: Any) -> str:
    """Returns the name of a gradient function, also where its context has an attribute `name` of the user's."""
    return str(type(node).name(node))


def current_gradient() -> Any:
    """Returns the gradient function that the engine runs now, or None. There is no public query for it."""
    return torch._C._current_autograd_node()


@contextmanager
def saved_tensors_noted(note: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """Calls a function for each tensor that autograd saves in the block, except within transforms of `torch.func`.

    Those refuse to run where there are hooks on saved tensors, by a function of torch that has no other use. Ours
    change nothing, so they step aside for that time; there is no public way to do so.

    Args:
        note: Is called with the tensor, and returns what is saved: a result that is saved itself holds itself.
    """

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        return note(tensor)

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    graph: Any = torch.autograd.graph
    refuse = graph.disable_saved_tensors_hooks
    hooks = torch._C._autograd

    @contextmanager
    def stepped_aside(message: str) -> Iterator[None]:
        top = hooks._top_saved_tensors_default_hooks(True)
        ours = top is not None and top[0] is pack
        if ours:
            hooks._pop_saved_tensors_default_hooks()
        try:
            with refuse(message):
                yield
        finally:
            if ours:
                hooks._push_saved_tensors_default_hooks(pack, unpack)

    with PutBack(partial(setattr, graph, "disable_saved_tensors_hooks", refuse)):
        graph.disable_saved_tensors_hooks = stepped_aside
        with graph.saved_tensors_hooks(pack, unpack):
            yield


def is_backward_running() -> bool:
    """Returns whether the engine runs in this thread, also between gradient functions: hooks and callbacks are of
    backward. There is no public query for it.
    """
    return torch._C._current_graph_task_id() != -1


def is_recomputing(node: torch.autograd.graph.Node) -> bool:
    """Returns whether a checkpoint computes again what the gradient function `node`, which runs, needs.

    A checkpoint has no flag that says so: one kind runs the function within a gradient function of its own, the other
    within hooks on saved tensors.
    """
    if name_of(node) == "CheckpointFunctionBackward":
        return torch.is_grad_enabled()
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks is not None and getattr(hooks[0], "__qualname__", "").startswith("_recomputation_hook.")


def leaves_behind_gradient() -> list[torch.Tensor]:
    """Returns the leaves that the gradient function that runs now computes gradients for, or for what was made of them.

    When it goes: an empty tensor that requires grad.
    """
    ahead: list[Any] = [torch._C._current_autograd_node()]
    seen, leaves = set(), []
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        ahead += [following for following, _ in node.next_functions]
    return leaves


def skips_padding() -> bool:
    """Returns whether the C++ formula of an embedding's gradient runs now and has to leave out rows of `padding_idx`.

    The formula is made of operators, and nobody can say to autograd that it should use another. Hooks on gradients run
    while the engine names the same function, but from Python.
    """
    node: Any = torch._C._current_autograd_node()
    if node is None or name_of(node) != "EmbeddingBackward0":
        return False
    if node._saved_padding_idx in (-1, 2**64 - 1):
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("subclass_aot."):
        frame = frame.f_back
    return frame is None or frame.f_code.co_name == "_engine_run_backward"


def writes_through_a_view() -> bool:
    """Returns whether the gradient of a write into a view is being computed, of the tensor that it is a view of.

    Only the name of the gradient function says so, and only a private function gives the one that runs. When one of
    them changes: a view that begins before its base is refused later, or has the gradient of other elements.
    """
    node: Any = torch._C._current_autograd_node()
    return node is not None and name_of(node).endswith("CopySlices")


def sequence_number_of(function: Any) -> int:
    """Returns the number that autograd gave to a gradient function; those of leaves have the highest. It is not public.

    Not public.
    """
    return int(function._sequence_nr())


def gradients(
    results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, ...]:
    """Returns what `torch.autograd.grad` gives, and keeps the graph of autograd; None where a gradient does not arrive.

    That one first calls the `__torch_function__` of classes among its arguments, and most of these disable it for all
    that runs within, which is the whole backward: what they override is not overridden there. `.backward()` of a dense
    loss, which is how users go backward, does not call it.
    """
    found: tuple[torch.Tensor | None, ...] = torch.autograd.graph._engine_run_backward(
        tuple(results), tuple(tangents), True, False, tuple(inputs), allow_unreachable=True, accumulate_grad=False
    )
    return found


below_autograd: Callable[[], Any] = torch._C._AutoDispatchBelowAutograd
"""Runs a block in which operators make no history, though grad mode may be on, which some kernels read. The public way
is to detach each argument, which takes as long as a small kernel.
"""


def is_below_autograd() -> bool:
    """Returns whether autograd has seen the operator that runs now. Only the dispatcher's own state says it.

    Dynamo traces what users write, which is above autograd.
    """
    if torch.compiler.is_dynamo_compiling():
        return False
    return torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)


def view_function(view: torch.Tensor) -> Any:
    """Returns a function that makes the same view of another base, by the view operators that made `view`.

    Autograd keeps this chain for itself; it is the only complete record of how a view was made.
    """
    return view._view_func_unsafe


def view_rules(view: torch.Tensor) -> Any:
    """Returns how autograd lets `view` be written, by where it was made: under `no_grad`, as one of several results,
    ...

    There is no public query; only errors of in-place writes say it.
    """
    return torch._C._autograd._get_creation_meta(view)


def set_view_rules(view: torch.Tensor, rules: torch._C._autograd.CreationMeta) -> None:
    """Makes autograd treat `view` like one whose `view_rules` are given."""
    torch._C._autograd._set_creation_meta(view, rules)


def rules_named(name: str) -> torch._C._autograd.CreationMeta:
    """Returns the `view_rules` of a name. They are an enumeration without a public name."""
    return getattr(torch._C._autograd.CreationMeta, name)  # type: ignore[no-any-return]


def can_regenerate(view: torch.Tensor) -> bool:
    """Returns whether `view_rules` let autograd regenerate a view after a write into what it is a view of.

    Of an operator with several results, `view_function` takes the one at its place without a check that there are so
    many; where the sizes of the base are others, the process ends. Such a view, and one made without grad, may not.
    """
    rules = view_rules(view)
    return rules is None or bool(rules.name == "DEFAULT")


def exchange(one: torch.Tensor, other: torch.Tensor) -> None:
    """Makes each of two objects of one class the tensor that the other one is, with its slots, but not its `__dict__`.

    What is a parameter stays one. `torch.utils.swap_tensors` refuses tensors that weak references lead to, or that C++
    holds, too, for a gradient.
    """
    for slot in type(one).__slots__:  # type: ignore[attr-defined]
        if is_mark(slot):
            continue
        mine, others = getattr(one, slot), getattr(other, slot)
        setattr(one, slot, others)
        setattr(other, slot, mine)
    torch._C._swap_tensor_impl(one, other)


def made_without_grad(rules: torch._C._autograd.CreationMeta | None) -> bool:
    """Returns whether a view with these `view_rules` was made where autograd was off."""
    return rules is not None and rules.name in ("NO_GRAD_MODE", "INFERENCE_MODE")


force_view_tracking: Any = torch.autograd.grad_mode._force_original_view_tracking
"""Makes autograd keep the view operators also where it could do with `as_strided`, which most wrappers do not have."""


def set_versions(tensors: tuple[torch.Tensor, ...], versions: tuple[int, ...]) -> None:
    """Sets version counters: for writes that eager makes below autograd, where none counts. Torch has no public way."""
    torch._C._autograd._unsafe_set_version_counter(tensors, versions)


saved_tensor_hooks: Callable[[], Any] = partial(torch._C._autograd._top_saved_tensors_default_hooks, True)
"""The hooks that see the tensors which autograd saves, the innermost ones; None without. The public module sets them
and has no question for them.
"""


def has_hooks(tensor: torch.Tensor) -> bool:
    """Returns whether gradient hooks are registered on a tensor. Only the methods that register them are public."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def has_hooks_of_node(node: torch.autograd.graph.Node) -> bool:
    """Returns whether hooks are registered on a gradient function, by itself and not on a tensor.

    Only their handles lead to them, so one is registered, and removed again. When the attribute of a handle goes: such
    hooks are not found.
    """
    for register in (node.register_hook, node.register_prehook):
        handle = register(lambda *gradients: None)
        hooks = handle.hooks_dict_ref()
        handle.remove()
        if hooks:
            return True
    return False


def note_hooks(node: Any) -> None:
    """Notes on a gradient function that hooks are registered on a tensor of it; torch notes it on the tensor alone."""
    node.metadata[_NOTED] = True


def has_noted_hooks(node: Any) -> bool:
    """Returns whether `note_hooks` was called of a gradient function."""
    return _NOTED in node.metadata


_NOTED = "subclass_aot.base.hooks"


def function_of(node: torch.autograd.function.BackwardCFunction) -> type[torch.autograd.Function]:
    """Returns the class that a program has written, of the node that torch makes for it. Only the node leads to it."""
    return type(node)._forward_cls  # type: ignore[attr-defined, no-any-return]


def may_save(node: torch.autograd.graph.Node) -> bool:
    """Returns whether a gradient function may keep tensors, which it releases when backward has run.

    The classes that torch generates have an attribute for each; no public name tells them from others. Of others nobody
    can say, so they may.
    """
    if hasattr(node, "variable"):  # it is a leaf
        return False
    cls = type(node)
    is_generated = getattr(getattr(torch._C, "_functions", None), cls.__name__, None) is cls
    return not (is_generated and "Backward" in cls.__name__) or any(name.startswith("_raw_saved_") for name in dir(cls))


CLEAR_SAVED = "maybe_clear_saved_tensors"
"""The method of a `ctx` that releases what is saved for backward, unless the graph is kept. AOTAutograd calls it."""

BASE = "_base"
base_of: Callable[[Any], Any] = operator.attrgetter(BASE)
"""The tensor that autograd knows a tensor to be a view of, or None. The manual of autograd has no other name for it."""

IS_VIEW = "_is_view"
is_view: Callable[[Any], bool] = operator.methodcaller(IS_VIEW)
"""Whether autograd knows a tensor to be a view, which may be so where it does not say of what. No public query."""

in_cpp: Callable[[Any], int] = operator.attrgetter("_cdata")
"""Which tensor in C++ a tensor is, as a number. `torch.utils.swap_tensors` gives it another; no manual has a name for
it.
"""

version_of: Callable[[Any], int] = operator.attrgetter("_version")
"""How often a tensor was written, which is what autograd compares. The manual of autograd has no other name for it."""


def is_held_in_cpp(tensor: torch.Tensor) -> bool:
    """Returns whether C++ refers to a tensor, too, beside its Python object. No public way counts what C++ has."""
    return bool(tensor._use_count() > 1)  # type: ignore[attr-defined]


def mark_as_parameter(tensor: torch.Tensor) -> None:
    """Makes `isinstance(tensor, nn.Parameter)` true, as torch does for parameters of other classes than `Tensor`."""
    tensor._is_param = True


def is_mark(attribute: str) -> bool:
    """Returns whether torch itself keeps a note on a tensor in this attribute, for parameters or for Dynamo."""
    return attribute.startswith(("_dynamo_", "_is_param", "_specialize_on", "_has_dynamo_"))


def apply_of(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Returns what `function.apply` calls in the end, where no transform of `torch.func` is active.

    `apply` checks for one at each call, and each argument for what a transform that is over left behind: 0.45 us an
    argument. Operators handle such arguments themselves.
    """
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]


def release_with(owner: Any, function: type[torch.autograd.Function]) -> None:
    """Has an `autograd.Function` release its methods when `owner` and its last node in autograd's graph are gone.

    A class refers to itself, so what its methods refer to would wait for the collector. When it goes: it waits.
    """
    node: Any = function._backward_cls
    without_nodes = -1

    def number_of_nodes() -> int:
        return sys.getrefcount(node) - without_nodes

    def release(dying: object = None) -> None:
        if number_of_nodes() > (dying is not None):
            node.__del__ = release
            return
        del function.forward, function.backward
        if dying is not None:
            del node.__del__

    without_nodes = sys.getrefcount(node)
    weakref.finalize(owner, release).atexit = False


_COMPILED_ALREADY = """Compiled autograd wants to look into a backward that is compiled already.
  Instead: call backward() outside of compiled autograd, or compile none of this function ahead of time."""


def refuse_compiled_autograd(function: type[torch.autograd.Function]) -> None:
    """Has compiled autograd refuse a function by name, as it does the accelerator's node, which says the same.

    It makes a key first. Then it would read the generated Python of backward, which is in no file. When it goes:
    nothing; the error is less clear.
    """

    def refuse(ctx: object) -> Any:
        raise NotImplementedError(_COMPILED_ALREADY)

    function._compiled_autograd_key = staticmethod(refuse)  # type: ignore[method-assign]
