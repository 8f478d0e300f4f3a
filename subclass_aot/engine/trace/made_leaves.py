"""Leaves of autograd's graph that a function makes and gives out, as by `requires_grad_()` on a view of an input.

Note [Made leaves]
~~~~~~~~~~~~~~~~~~
In eager mode the gradients of what is computed from such a leaf arrive in its `.grad`. A compiled backward gives
gradients to tensors that its `autograd.Function` was given, and these are there before it runs. So where a result
depends on a made leaf, the graph runs first; then the leaf is made, as it is among the results; and only then is the
function applied, to the inputs and to the leaf, and says to autograd what the graph has computed of them.

Of a leaf that is not given out nobody could read the gradient, so it has none.

>>> import torch
>>> import subclass_aot as sa
>>> def f(x):
...     y = (x * 2).requires_grad_()
...     return y, y.sin()
>>> compiled = sa.aot_compile(f, fw_compiler="eager")
>>> y, z = compiled(torch.ones(3))
>>> print(compiled.source)
def call(...):
    ...
    with no_grad():
        outputs = forward_graph([...])
        ...
    leaf = (output_0.detach()).requires_grad_()
    (output_1, ) = run([...], [output_0, output_1, ...], [], leaf)
    return (leaf, output_1, )
    ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.aliasing import is_autograd_leaf
from subclass_aot.engine.descriptors import Descriptor, IntermediateBase, PlainOutput
from subclass_aot.engine.graph import messages
from subclass_aot.engine.outputs import Output, ViewOfBase, ViewOfInput
from subclass_aot.engine.signature import MadeLeaf, Mutations
from subclass_aot.engine.trace.inputs import Gradient
from subclass_aot.errors import LastingChangeError, MutationError
from subclass_aot.kit.flatten import FlattenPlan

LeafDescriptor = PlainOutput | IntermediateBase
"""What a made leaf is."""


def made_leaves(
    results: Sequence[Any], outputs: Sequence[Output], made: Mapping[Any, torch.Tensor]
) -> dict[LeafDescriptor, torch.Tensor]:
    """Returns the leaves that a function made and gives out, by what they are.

    Args:
        results: What it returned.
        outputs: What each of these is.
        made: What forward makes: results, and what several of them are views of, by what they are.

    Raises:
        LastingChangeError: The function went backward to one, or registered a hook on it.
    """
    views = {PlainOutput(i): results[i] for i, o in enumerate(outputs) if isinstance(o, ViewOfInput | ViewOfBase)}
    found = {desc: tensor for desc, tensor in {**made, **views}.items() if is_autograd_leaf(tensor)}
    for desc, leaf in found.items():
        if leaf.grad is not None or _torch.autograd.has_hooks(leaf):
            raise LastingChangeError(messages.USED_LEAF.format(path=desc))
    return found


def described(
    leaves: Mapping[LeafDescriptor, torch.Tensor],
    outputs: Sequence[Output],
    gradients: Mapping[Descriptor, Gradient],
    mutations: Mutations,
    paths: Sequence[str],
) -> tuple[MadeLeaf, ...]:
    """Returns the same as the signature has them.

    Args:
        leaves: What `made_leaves` found.
        outputs: What each of the results is.
        gradients: Those that backward gives, by what has them.
        mutations: What the function does to its inputs.
        paths: What each input is called.

    Raises:
        MutationError: A leaf would have to be made of an input after its write, and before it.
    """
    found = []
    for desc, leaf in leaves.items():
        output = outputs[desc.index] if isinstance(desc, PlainOutput) else None
        gradient, reach = gradients.get(desc, (None, ()))
        if gradient is not None and isinstance(output, ViewOfInput) and output.value in mutations.under_autograd:
            raise MutationError(messages.LEAF_OF_MUTATED.format(leaf=desc, path=paths[output.value]))
        meta = FlattenPlan.of([leaf]).metas[0]
        found.append(MadeLeaf(desc, meta, isinstance(leaf, torch.nn.Parameter), gradient, reach))
    return tuple(found)
