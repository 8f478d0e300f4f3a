"""The part of a guard that compares what tensors have to do with one another: memory, history, autograd."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from subclass_aot import _torch
from subclass_aot.aliasing import autograd_base, has_storage, storage_groups
from subclass_aot.call import Arguments
from subclass_aot.codegen import GuardedSource
from subclass_aot.flatten import FlattenPlan
from subclass_aot.signature import JointSignature


def leaves_of(arguments: Arguments, signature: JointSignature) -> list[Any]:
    """Returns the leaves of the call that was traced, by flat slot, and after these those of its views."""
    plan = arguments.plan  # its code was generated for the trace
    if signature.assumptions.symbols is not None:  # symbolic sizes have slots, too
        plan = FlattenPlan(tuple(given.meta for given in signature.inputs), "inputs")
    # For single use: these plans generate code that runs once. Only signatures that write come here.
    views = FlattenPlan.of(arguments.views).unwrap(arguments.views) if arguments.views else []
    return [*plan.unwrap(arguments.values), *views]


def autograd_leaves(signature: JointSignature) -> dict[int, bool]:
    """Says which inputs are leaves of autograd's graph: in-place writes mean another thing on a leaf than on others.

    Args:
        signature: The signature.

    Returns:
        For the position of each input of which that is compared, whether it is a leaf.
    """
    matters = signature.grad_modes[0] or signature.needs_backward
    return {i: given.is_leaf for i, given in enumerate(signature.inputs) if given.requires_grad and matters}


def refuse_other_autograd_leaves(
    source: GuardedSource,
    arguments: Arguments,
    signature: JointSignature,
    values: Sequence[str],
    compared: Container[int] = (),
) -> None:
    """Compares which inputs are leaves of autograd's graph, and how autograd has views.

    Args:
        source: The guard.
        arguments: The call that was traced.
        signature: Its signature.
        values: Expressions of its values, and of its views after these.
        compared: The positions of those that were compared before.
    """
    for i, is_leaf in autograd_leaves(signature).items():
        if i not in compared:
            source.refuse_if(f"{values[i]}.is_leaf is not {is_leaf}")
    for name, view in zip(values[len(signature.inputs) :], arguments.views, strict=True):
        rules = source.const(_torch.view_rules, "view_rules")
        source.refuse_if(f"{rules}({name}) != {source.const(_torch.view_rules(view), 'rules')}")


def refuse_other_storages(
    source: GuardedSource, signature: JointSignature, leaves: Sequence[Any], names: Sequence[str]
) -> None:
    """Compares which leaves share storage, and where they lie in it: a graph that writes is made for one pattern.

    Args:
        source: The guard.
        signature: The signature.
        leaves: The leaves of the call that was traced, those of views after the others.
        names: Their expressions.
    """
    groups = storage_groups(leaves)
    together = {slot for group in groups for slot in group}
    groups += [base.slots for base in signature.mutations.bases if together.isdisjoint(base.slots)]
    together.update(slot for group in groups for slot in group)
    for group in groups:
        storage = f"{names[group[0]]}.untyped_storage()"
        for other in group[1:]:
            source.refuse_if(f"{names[other]}.untyped_storage().data_ptr() != {storage}.data_ptr()")
        for slot in group:  # how they overlap is part of the graph
            source.refuse_if(f"{names[slot]}.storage_offset() != {leaves[slot].storage_offset()}")
        nbytes = leaves[group[0]].untyped_storage().nbytes()
        source.refuse_if(f"{storage}.nbytes() != {nbytes}")
    # One of each group stands for it: storages that were two are two.
    alone = [slot for slot, leaf in enumerate(leaves) if has_storage(leaf) and slot not in together]
    alone += [group[0] for group in groups if has_storage(leaves[group[0]])]
    if len(alone) > 1:
        pointers = ", ".join(f"{names[slot]}.untyped_storage().data_ptr()" for slot in alone)
        source.refuse_if(f"len({{{pointers}}}) != {len(alone)}")


def refuse_other_histories(
    source: GuardedSource, arguments: Arguments, signature: JointSignature, leaves: Sequence[Any], names: Sequence[str]
) -> None:
    """Compares bases: a write that autograd sees reaches the views of one tensor, and nothing else of its storage.

    Args:
        source: The guard.
        arguments: The call that was traced.
        signature: Its signature.
        leaves: Its leaves, those of views after the others.
        names: Expressions of its values.
    """
    slots = signature.index_map.slots
    owner = source.const(autograd_base, "autograd_base")
    groups = [{slots[s].outer for s in group if s < len(slots)} for group in storage_groups(leaves)]
    pairs = {
        (i, j) for i, _ in signature.mutations.autograd_mutations for group in groups if i in group for j in group - {i}
    }
    for i, j in sorted(pairs):
        same = autograd_base(arguments.values[i]) is autograd_base(arguments.values[j])
        source.refuse_if(f"({owner}({names[i]}) is {owner}({names[j]})) is not {same}")
