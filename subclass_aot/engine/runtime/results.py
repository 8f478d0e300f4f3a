"""The part of a call that makes results of what forward made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import assert_never

import torch

from subclass_aot.base import _torch
from subclass_aot.base.codegen import Source
from subclass_aot.engine.descriptors import IntermediateBase, OutputDescriptor, PlainOutput
from subclass_aot.engine.outputs import (
    ComputedSymints,
    Constant,
    Output,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfBase,
    ViewOfInput,
)
from subclass_aot.engine.runtime.attached import attached, new_view
from subclass_aot.engine.runtime.calling_convention import SymintNames
from subclass_aot.engine.signature import JointSignature, MadeLeaf
from subclass_aot.kit.views import Chain

_View = ViewOfInput | ViewOfBase


class Results:
    """Appends what makes the flat results, each when it is first read.

    Views that one operator gives (`unbind`, `split`) are made by one call of it, as the program makes them.

    Args:
        source: The function of the call.
        signature: What the results are.
        values: A local for each input.
        made: A local for each of `JointSignature.forward_values`.
        locals_of: Locals of numbers that forward computed.
    """

    # More than ten attributes: what all results are made of, and what several of them share.
    def __init__(
        self,
        source: Source,
        signature: JointSignature,
        values: Sequence[str],
        made: Mapping[OutputDescriptor, str],
        locals_of: Mapping[OutputDescriptor, str],
    ) -> None:
        self._source, self._signature, self._values = source, signature, values
        self._locals_of, self._symints = locals_of, SymintNames.of(locals_of)
        self._made = made
        self._bases = {desc.index: name for desc, name in made.items() if isinstance(desc, IntermediateBase)}
        self._leaves = {leaf.output: leaf for leaf in signature.made_leaves}
        self._results: dict[int, str] = {}
        self._together = _views_together(signature.outputs)
        self._whole: dict[tuple[object, ...], str] = {}
        for desc, leaf in self._leaves.items():
            if isinstance(desc, IntermediateBase):
                self._bases[desc.index] = self._leaf(leaf, self._bases[desc.index])

    def all(self) -> list[str]:
        """Returns a local or a constant for each result."""
        return [self.at(i) for i in range(len(self._signature.outputs))]

    def of(self, leaf: MadeLeaf) -> str:
        """Returns the local of a leaf of autograd's graph."""
        if isinstance(leaf.output, IntermediateBase):
            return self._bases[leaf.output.index]
        return self.at(leaf.output.index)

    def at(self, i: int) -> str:
        """Returns the local, or a constant, for one result."""
        if i not in self._results:
            self._results[i] = self._make(i, self._signature.outputs[i])
        return self._results[i]

    def _make(self, i: int, output: Output) -> str:
        source, signature = self._source, self._signature
        match output:
            case Value():
                leaf, made = self._leaves.get(PlainOutput(i)), self._made[PlainOutput(i)]
                if output.view is not None:
                    return self._attached(output, output.view, made)
                return made if leaf is None else self._leaf(leaf, made)
            case SameAsInput():
                return self._values[output.value]
            case SameAsOutput():
                return self.at(output.output)
            case ViewOfInput():
                grad = output.requires_grad or not signature.inputs[output.value].requires_grad
                return self._view(i, output, self._base(output), grad)
            case ViewOfBase():
                return self._view(i, output, self._base(output), output.requires_grad)
            case ComputedSymints():
                parts = [self._locals_of[p] if isinstance(p, OutputDescriptor) else str(p) for p in output.parts]
                return f"{source.const(torch.Size, 'Size')}(({', '.join(parts)},))" if output.is_size else parts[0]
            case Constant():
                return source.const(output.value, "constant")
        assert_never(output)

    def _base(self, view: ViewOfInput | ViewOfBase) -> str:
        """Returns the local of what a view is made of."""
        if isinstance(view, ViewOfInput):
            return self._values[view.value]
        return self._bases[view.intermediate_base] if view.output is None else self.at(view.output)

    def _beside(self, view: _View) -> str:
        """Returns what a view is made with beside its base, as further arguments."""
        given = [*map(self._symints.one, view.symints), *(self._bases[i] for i in view.beside)]
        return "".join(f", {one}" for one in given)

    def _attached(self, output: Value, view: ViewOfInput | ViewOfBase, made: str) -> str:
        """Appends a view whose gradient goes to what forward made."""
        source, name, attach = self._source, self._source.fresh("view"), self._source.const(attached, "attached")
        how = self._source.const(partial(new_view, view.replay, view.cls), "view_of")
        arguments = self._beside(view)
        source.line(f"{name} = {attach}({made}, {how}, {output.view_rules!r}, [{self._base(view)}{arguments}])")
        return name

    def _leaf(self, leaf: MadeLeaf, made: str) -> str:
        """Appends what makes a leaf of autograd's graph of something that forward made, and may have saved."""
        name, cls = self._source.fresh("leaf"), leaf.meta.cls
        bare = f"{made}.detach()"
        if _torch.plain_subclasses.is_plain_subclass(cls):
            as_class = self._source.const(_torch.plain_subclasses.as_class, "as_class")
            bare = f"{as_class}({bare}, {self._source.const(cls, cls.__name__)})"
        elif leaf.is_parameter:
            bare = f"{self._source.const(torch.nn.Parameter, 'Parameter')}({bare})"
        self._source.line(f"{name} = ({bare}).requires_grad_()")
        return name

    def _view(self, i: int, view: _View, base: str, grad: bool) -> str:
        """Appends a view of the local `base`, made as the program made it; returns the name of its local."""
        source, name = self._source, self._source.fresh("view")
        arguments = self._beside(view)
        replay, key = view.replay, self._together.get(i)
        several = replay.of_several() if key is not None and isinstance(replay, Chain) else None
        if key is not None and several is not None:
            whole, result, replay = several
            if (key, grad) not in self._whole:
                self._whole[key, grad] = source.fresh("views")
                with nullcontext() if grad else source.block(f"with {source.const(torch.no_grad, 'no_grad')}():"):
                    source.line(f"{self._whole[key, grad]} = {source.const(whole, 'views_of')}({base}{arguments})")
            base = f"{self._whole[key, grad]}[{result}]"
        with nullcontext() if grad else source.block(f"with {source.const(torch.no_grad, 'no_grad')}():"):
            as_class = "" if view.cls is None else f".as_subclass({source.const(view.cls, view.cls.__name__)})"
            made = base if replay == Chain() else f"{source.const(replay, 'view_of')}({base}{arguments})"
            source.line(f"{name} = {made}{as_class}")
        if PlainOutput(i) in self._leaves:
            source.line(f"{name}.requires_grad_()")
        return name


def _views_together(outputs: Sequence[Output]) -> dict[int, tuple[object, ...]]:
    """Returns which results are made by one call of an operator: those with an equal key. Others have none.

    Each has another of the results of the operator. The same one twice comes of two calls.
    """
    keys: dict[int, tuple[object, ...]] = {}
    members: dict[tuple[object, ...], list[int]] = {}
    for i, output in enumerate(outputs):
        several = output.replay.of_several() if isinstance(output, _View) and isinstance(output.replay, Chain) else None
        if several is None or not isinstance(output, _View):
            continue
        whole, result, _ = several
        base = (output.value,) if isinstance(output, ViewOfInput) else (output.intermediate_base, output.output)
        calls = 0
        while result in members.get(
            key := (type(output), base, repr(whole), repr(output.symints), output.beside, calls), ()
        ):
            calls += 1
        members.setdefault(key, []).append(result)
        keys[i] = key
    return {i: key for i, key in keys.items() if len(members[key]) > 1}
