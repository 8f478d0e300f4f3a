"""Changes of attributes of wrappers that are no inner tensors: these may change contexts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.objects import AccessPath, same_constant
from subclass_aot.engine.outcome import Context
from subclass_aot.engine.outputs import Output, ViewOfInput, views_of
from subclass_aot.engine.signature import Mutations
from subclass_aot.engine.tables import ATOMS, object_tables
from subclass_aot.errors import MutationError

_WRITTEN = """{path}: the function changes its context, and writes into it where autograd sees that.
  Such a write goes through the wrapper as a whole, when the graph has run, and what it means says the context.
  Instead: make a new wrapper, or write under `torch.no_grad()`."""

_VIEWED = """{path}: the function changes its context, and a result is a view of it.
  The view is made when the graph has run, and would have the context that there is then.
  Instead: return a copy, or change the context in another call."""


_IN_PLACE = """{path}.{name}: the function changes this object, and the class of the wrapper makes its context of it.
  Instead: assign another object, as in `wrapper.{name} = dataclasses.replace(wrapper.{name}, ...)`."""


def contexts_of(wrappers: Sequence[torch.Tensor], paths: Sequence[str]) -> list[Context]:
    """Notes what wrappers hold beside inner tensors, before the function runs.

    Args:
        wrappers: The traced inputs.
        paths: Where the user finds each.
    """
    found: list[Context] = []
    for i, (wrapper, path) in enumerate(zip(wrappers, paths, strict=True)):
        found += _contexts(wrapper, path, AccessPath("values", (i,)))
    return found


def _contexts(wrapper: object, path: str, access_path: AccessPath) -> Iterator[Context]:
    """Yields those of a wrapper and of wrappers inside."""
    if not _torch.wrappers.is_traceable_wrapper_subclass(wrapper) or _torch.wrappers.is_jagged(type(wrapper)):
        return
    names, _ = wrapper.__tensor_flatten__()
    others = {
        name: value
        for name, value in vars(wrapper).items()
        if name not in names and not isinstance(value, torch.Tensor) and not _torch.autograd.is_mark(name)
    }
    if others and not type(wrapper).__module__.startswith("torch."):  # torch's classes keep notes in theirs
        yield Context(access_path, path, wrapper, others)
    for name in names:
        yield from _contexts(getattr(wrapper, name, None), f"{path}.{name}", access_path.then(name))


@contextmanager
def unchanged_in_place(contexts: Sequence[Context]) -> Iterator[None]:
    """Refuses that objects in contexts are changed within the block. They are the user's, and get back what they held.

    Raises:
        MutationError: One is.
    """
    held = [
        (context, name, value, table, table.read(value))
        for context in contexts
        for name, value in context.held.items()
        for table in (() if type(value) in ATOMS or isinstance(value, tuple) else object_tables(value))
    ]
    changed: dict[tuple[str, str], None] = {}

    def put_back() -> None:
        for context, name, value, table, before in held:
            if not _same(before, table.read(value)):
                changed[context.path, name] = None
                table.write(value, before)

    with PutBack(put_back):
        yield
    for path, name in changed:
        raise MutationError(_IN_PLACE.format(path=path, name=name))


def _same(before: list[tuple[Any, Any]], now: list[tuple[Any, Any]]) -> bool:
    """Returns whether an object holds what it held. What begins with an underscore is the business of its class."""
    one, other = ({k: v for k, v in each if not str(k).startswith("_")} for each in (before, now))
    return one.keys() == other.keys() and all(same_constant(other[key], value) for key, value in one.items())


def refuse_context_changes(paths: Sequence[str], mutations: Mutations, outputs: Iterable[Output]) -> None:
    """Refuses what does not go together with another context.

    Raises:
        MutationError: The input is written where autograd sees it, or a result is a view of it.
    """
    viewed = {view.value for _, view in views_of(outputs) if isinstance(view, ViewOfInput)}
    for mutation in mutations.of_inputs:
        if mutation.mutates_context and (mutation.new_value is not None or mutation.input in viewed):
            message = _VIEWED if mutation.new_value is None else _WRITTEN
            raise MutationError(message.format(path=paths[mutation.input]))
