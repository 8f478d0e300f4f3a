"""Origins of nodes: annotations of the user's, the modules that were called, and autograd's number."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.tape import Tape

_CUSTOM, _NUMBER, _MODULES, _FORWARD_MODULES = "custom", "seq_nr", "nn_module_stack", "fwd_nn_module_stack"
_OPERATOR = "original_aten"
_KEYS = (_CUSTOM, _NUMBER, _MODULES, _FORWARD_MODULES, "autograd_backward", _OPERATOR)


class Annotations(GraphListener):
    """Notes of each node what torch's tracers note, under their names.

    `custom` is what `torch.fx.traceback.annotate` says around the operator; `nn_module_stack` the modules that are
    being called, outermost first, each as its name and its class, both as text; `seq_nr` the number of the gradient
    function that autograd made last; `original_aten` the operator that a decomposition has replaced. In backward, they
    are those of the forward operator that a gradient belongs to.

    Attributes:
        given: What all nodes get from now on, where a graph is recorded again.
        of_any_module: Whether the call reaches a module. One that the program makes for itself is not noted otherwise.
    """

    is_of_every_program = True

    def __init__(self) -> None:
        self.given: Mapping[str, Any] | None = None
        self.of_any_module = True
        self._names: dict[int, str] = {}  # of modules in the outermost that is being called, by id
        self._stack: dict[str, tuple[str, str]] = {}
        self._of_forward: dict[int, dict[str, Any]] = {}

    def on_node(self, recorder: Tape, node: fx.Node) -> None:
        if node.op != "placeholder":
            node.meta.update(self._now(recorder.phase) if self.given is None else self.given)
            if recorder.replaced_operator is not None:
                node.meta.setdefault(_OPERATOR, recorder.replaced_operator)

    def _now(self, phase: str) -> Mapping[str, Any]:
        custom = fx.traceback.get_current_meta().get(_CUSTOM)
        found: dict[str, Any] = {_CUSTOM: dict(custom)} if custom else {}
        if phase == "backward":
            if self._stack:  # a checkpoint calls them again
                found[_FORWARD_MODULES] = self._stack
            number = _torch.autograd.sequence_number_of_current_gradient()
            if number in self._of_forward:
                forward = self._of_forward[number]
                for theirs, ours in (_CUSTOM, _CUSTOM), (_MODULES, _FORWARD_MODULES), (_NUMBER, _NUMBER):
                    if theirs in forward:
                        found.setdefault(ours, forward[theirs])
            return {**found, "autograd_backward": True}
        found[_NUMBER] = _torch.autograd.last_sequence_number()
        if self._stack:
            found[_MODULES] = self._stack
        self._of_forward.setdefault(found[_NUMBER], found)
        return found

    @contextmanager
    def of_modules(self) -> Iterator[None]:
        """Runs the block, and notes calls of modules in this thread.

        Python forgets what it has found of each subclass when an attribute of a class is set, and `Module` has many.
        So it is left out where no module is called.
        """
        thread = threading.get_ident()
        call: Any = torch.nn.Module.__call__

        @functools.wraps(call)
        def noted(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                return call(module, *args, **kwargs)
            # Torch calls no hook behind a call that raises while it compiles.
            with PutBack(functools.partial(setattr, self, "_stack", self._stack)):
                self._stack = self._with(module)
                return call(module, *args, **kwargs)

        with PutBack(attributes_put_back([(torch.nn.Module, "__call__")])):
            torch.nn.Module.__call__ = noted  # type: ignore[method-assign]
            yield

    def _with(self, module: torch.nn.Module) -> dict[str, tuple[str, str]]:
        """Returns the modules that are being called, and one more."""
        if not self._stack:
            self._names = {id(each): name for name, each in module.named_modules()}
        cls = type(module)
        name = self._names.get(id(module), cls.__name__)
        return {**self._stack, name: (name, f"{cls.__module__}.{cls.__qualname__}")}


def annotations_of(node: fx.Node) -> dict[str, Any]:
    """Returns what was noted of a node."""
    return {key: node.meta[key] for key in _KEYS if key in node.meta}
