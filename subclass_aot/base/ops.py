"""Sets of operators, for rules that serve many: `@MyClass.implements(ops.pointwise)`.

A set is defined by schemas and tags of operators, so it holds custom operators, too, and those that are
registered later. No operator is in two of these.

Composite operators are in none, since those that they are made of arrive one by one; nor are `clone`, `copy_`,
`detach`, `to` and others that leave a tensor as it is, `out=` overloads and collectives.

>>> import torch
>>> from subclass_aot import ops
>>> torch.ops.aten.mul.Tensor in ops.pointwise, torch.ops.aten.mul_.Tensor in ops.pointwise
(True, False)
>>> ops.pointwise | ops.reductions
ops.pointwise | ops.reductions
>>> ops.views.description
'the result shares the memory of an argument, as in `t`, `expand` and `split`'
"""

from __future__ import annotations

from subclass_aot.base.operators import OperatorKind, OperatorSet

__all__ = ["factories", "in_place", "pointwise", "reductions", "views"]

pointwise = OperatorSet(frozenset({OperatorKind.POINTWISE}))
"""Each element of the one result is computed from the elements at its place: `mul`, `where`, `sigmoid_backward`.

What torch tags so, and makes a new tensor. It tags neither `floor_divide` nor the backward of some activations.
"""

reductions = OperatorSet(frozenset({OperatorKind.REDUCTIONS}))
"""Dims, or all of them, become one value: `sum`, `amax`, `var`, `argmax`, `median`. Some return several tensors.

What torch tags so, or takes one tensor, `dim` and `keepdim`, or has an overload that does.
"""

factories = OperatorSet(frozenset({OperatorKind.FACTORIES}))
"""A tensor is made of sizes and options, and takes no values: `zeros_like`, `rand_like`, `new_full`, `ones`.

What takes `dtype` and `device`, and no tensor before `self`, which it is like.
"""

in_place = OperatorSet(frozenset({OperatorKind.IN_PLACE}))
"""New values are written into the first argument, which is the result: `add_`, `lerp_`, `index_put_`, `zero_`.

What changes sizes or strides, as `t_` does, is not among them.
"""

views = OperatorSet(frozenset({OperatorKind.VIEWS}))
"""The result shares the memory of an argument, as its schema says: `t`, `expand`, `split`; and `_unsafe_view`."""
