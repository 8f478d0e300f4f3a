"""The log of what a program has written so far, and how it has changed the metadata of tensors."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.graph.listeners.internal_overlap import reaches_places_twice
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.messages import METADATA_MUTATED, OUT_GROWS, VIEW_OF_MUTATED_BEFORE
from subclass_aot.engine.graph.resize import RESIZE_AS, RESIZED_DTYPE, RESIZES, resize_like
from subclass_aot.engine.graph.tape import Phase, Tape
from subclass_aot.errors import LastingChangeError, MutationError
from subclass_aot.kit.views import Step
from subclass_aot.meta import MetaTensor, Spec, Storage
from subclass_aot.meta.symbols import SizesMustBeKnown

_CONSTANT_WRITTEN = """The traced function writes into a tensor that is not an argument of it.
  Operator:   {operator}
  Your line:  {line}
  The tensor: {shape}
  A graph can write into its inputs only, so this write would be lost.
  Instead: pass the tensor as an argument, or register it as a buffer of the module that is compiled."""

_WRITTEN_TWICE = """The traced function writes into a tensor in which several elements are one place in memory.
  Operator:   {operator}
  Your line:  {line}
  The tensor: {shape}
  Eager refuses such a write into an expanded tensor, and of windows that overlap (unfold, as_strided) it does not tell
  which element comes last. Instead: write into the tensor before it is expanded or unfolded, or into a clone of it."""

_STORAGE_REPLACED = """The traced function gives an input other memory, or a tensor of another size.
  Operator:   {operator}
  Your line:  {line}
  The tensor: {shape}
  A graph can write into the memory of its inputs, but not exchange it.
  Instead: write into the tensor, as in x.copy_(source), or return the other tensor."""

_OUTDATED = "a view of it is used that was made before"


class MutationLog(GraphListener):
    """Notes writes and metadata mutations, and refuses what no graph can do.

    Attributes:
        written: Storages that were written, each with the phases it was written in.
        metadata: Operators that mutated the metadata of a tensor (`t_`, `unsqueeze_`, ...), in order: the
            tensor, the operator with its other arguments, whether autograd sees it.
        version_before: By the id of such a tensor, its version before the last time.
        resized: Leaves that `resize_` changed, and their specs since. See Note [Resized tensors].
        extents: How many elements a storage has in the end, where that is more than it began with.
    """

    is_of_every_program = True
    goes_on = True

    def __init__(self) -> None:
        self.written: dict[Storage, set[Phase]] = {}
        self.metadata: list[tuple[torch.Tensor, Step, bool]] = []
        self.version_before: dict[int, int] = {}
        self._noted: dict[MetaTensor, Spec] = {}  # the specs of inputs after an operator of `metadata`
        self.resized: dict[MetaTensor, Spec] = {}
        self.extents: dict[Storage, int] = {}
        self._outdated: dict[
            int, weakref.ref[torch.Tensor]
        ] = {}  # by id: views whose base had its metadata mutated since

    def __bool__(self) -> bool:
        """Returns whether anything was mutated."""
        return bool(self.written or self.metadata)

    @property
    def changed(self) -> list[Storage]:
        """The storages that are not what they were."""
        return [*self.written, *map(Storage.of, self.resized)]

    def fork(self) -> MutationLog:
        log = MutationLog()
        log.written = {storage: set(phases) for storage, phases in self.written.items()}
        log.metadata = list(self.metadata)
        log.resized, log.extents = dict(self.resized), dict(self.extents)
        log.version_before, log._outdated = dict(self.version_before), dict(self._outdated)
        log._noted = dict(self._noted)
        return log

    def on_wrapper_operator(
        self, recorder: Tape, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if func in _torch.operators.METADATA_QUERIES:
            return
        if effects_of(func).reshapes:
            self._note_metadata(func, args, kwargs, recorder.made)
        else:
            self.refuse_outdated([*args, *kwargs.values()])

    def on_operator(
        self,
        recorder: Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        reshapes = effects_of(func).reshapes
        if reshapes or self.metadata:
            recorder.note_used(args)
            self.on_wrapper_operator(recorder, func, args, kwargs)
        if not reshapes:
            return
        if args[0].meta_tag.op == "placeholder":
            self._noted[args[0]] = args[0].meta_spec
        if func in RESIZES:
            self._note_resize(func, args[0])

    def _note_metadata(
        self,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        made: Iterable[weakref.ref[torch.Tensor]],
    ) -> None:
        """Notes that an operator mutates the metadata of its first argument; `made` is what the trace has made."""
        tensor = args[0]
        step = Step.of(func, args[1:], kwargs) if func is not RESIZE_AS else resize_like(*args[1:], **kwargs)
        self.metadata.append((tensor, step, torch.is_grad_enabled()))
        self.version_before[id(tensor)] = _torch.autograd.version_of(tensor)
        if tensor.requires_grad:
            alive = [(ref, x) for ref in made if (x := ref()) is not None]
            views = [
                (id(x), ref) for ref, x in alive if _torch.autograd.is_view(x) and _torch.autograd.base_of(x) is tensor
            ]
            self._outdated.update(views)

    def refuse_outdated(self, values: Sequence[Any]) -> None:
        """Refuses views of a tensor whose metadata was mutated since.

        Args:
            values: What is read; only tensors count.

        Raises:
            MutationError: One is such a view: autograd would regenerate it, of the tensor as it is now.
        """
        for value in values if self._outdated else ():
            ref = self._outdated.get(id(value))
            if ref is not None and ref() is value:
                raise MutationError(VIEW_OF_MUTATED_BEFORE.format(reason=_OUTDATED, line=user_line()))

    def on_write(self, recorder: Tape, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        storage = Storage.of(leaf)
        where = {"operator": func, "line": user_line()}
        if storage.tag.op == "get_attr":
            raise MutationError(_CONSTANT_WRITTEN.format(shape=repr(storage.spec), **where))
        if func.overloadpacket is torch.ops.aten.set_ and leaf.meta_tag.op == "placeholder":
            raise LastingChangeError(_STORAGE_REPLACED.format(shape=repr(leaf.meta_spec), **where))
        if torch.Tag.inplace_view not in func.tags and reaches_places_twice(func, leaf):
            raise MutationError(_WRITTEN_TWICE.format(shape=repr(leaf.meta_spec), **where))
        if not effects_of(func).reshapes:
            self._refuse_resized(func, leaf)
        self.written.setdefault(storage, set()).add(recorder.phase)

    def collections(self) -> list[Collection[Any]]:
        return [self.resized, self._noted, *self.metadata]

    def _note_resize(self, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        """Notes how much memory a tensor has that is given another size. See Note [Resized tensors].

        Raises:
            MutationError: A graph cannot do that.
            SizesMustBeKnown: A size is a symbol.
        """
        storage = Storage.of(leaf)
        began: Spec = storage.tag.meta["spec"]
        if storage.tag.op == "get_attr":
            raise MutationError(_CONSTANT_WRITTEN.format(operator=func, line=user_line(), shape=repr(began)))
        if leaf.meta_spec.dtype is not began.dtype:
            before, after = began.dtype, leaf.meta_spec.dtype
            raise MutationError(RESIZED_DTYPE.format(operator=func, line=user_line(), before=before, after=after))
        if leaf.meta_spec.solver is not None or began.solver is not None:
            raise SizesMustBeKnown
        self.resized[leaf] = leaf.meta_spec
        self._note_extent(leaf)

    def _note_extent(self, leaf: MetaTensor) -> None:
        storage = Storage.of(leaf)
        began: Spec = storage.tag.meta["spec"]
        self.extents[storage] = max(self.extents.get(storage, began.extent), leaf.meta_spec.extent)

    def _refuse_resized(self, func: _torch.operators.Operator, leaf: MetaTensor) -> None:
        """Refuses tensors of another size as `out=`, where more than this tensor would change with it."""
        before = self._noted.get(leaf) or self.resized.get(leaf) or leaf.meta_tag.meta["spec"]
        if before is leaf.meta_spec or before.numel == leaf.meta_spec.numel and leaf not in self._noted:
            return
        if leaf.meta_tag.op == "placeholder":
            path = str(descriptor_of(leaf.meta_tag))
            raise MutationError(METADATA_MUTATED.format(path=path, before=before, after=leaf.meta_spec))
        if func.overloadpacket is torch.ops.aten.set_:
            shape = repr(leaf.meta_spec)
            raise LastingChangeError(_STORAGE_REPLACED.format(operator=func, line=user_line(), shape=shape))
        if _is_view(leaf) and before.numel < leaf.meta_spec.numel:
            sizes = {"before": list(before.size), "after": list(leaf.meta_spec.size)}
            raise MutationError(OUT_GROWS.format(operator=func, line=user_line(), **sizes))
        if before.solver is None and leaf.meta_spec.solver is None:
            self._note_extent(leaf)
            if leaf in self.resized:
                self.resized[leaf] = leaf.meta_spec


def _is_view(leaf: MetaTensor) -> bool:
    """Returns whether an operator made a leaf as a view of another."""
    return leaf.meta_tag is not Storage.of(leaf).tag
