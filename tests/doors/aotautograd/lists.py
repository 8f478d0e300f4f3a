"""Lists of values as AOTAutograd is given them, real and fake, and what AOTAutograd says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch._functorch._aot_autograd import schemas
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

import subclass_aot as sa
from tests.kit.flatten.test_random_trees import FastPack, Pack


def two(value: float = 1.0) -> TwoTensor:
    return TwoTensor(torch.full((2,), value), torch.full((2,), -value))


def pack(inner: dict[str, torch.Tensor], cls: type[Pack] = Pack) -> Pack:
    first = inner["first"]
    return cls(inner, "tag", first.size(), first.stride())


def _again(value: Any) -> Any:
    """Another tensor like one."""
    if not is_traceable_wrapper_subclass(value):
        return torch.empty_strided(value.shape, value.stride()).fill_(2)
    names, context = value.__tensor_flatten__()
    inner = {name: _again(getattr(value, name)) for name in names}
    return type(value).__tensor_unflatten__(inner, context, value.size(), value.stride())


def _wrapped(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Wrappers of torch's own class, of this library's, and of one with an optional part."""
    pair = inner.map(lambda x: (x, _again(x)))
    return st.one_of(
        pair.map(lambda p: TwoTensor(*p)),
        pair.map(lambda p: pack({"first": p[0], "third": p[1]})),
        inner.map(lambda x: pack({"first": x}, FastPack)),
    )


def _dense(rows: int, columns: int, turned: bool) -> torch.Tensor:
    return torch.rand(columns, rows).t() if turned else torch.rand(rows, columns)


DENSE = st.builds(_dense, st.integers(2, 4), st.integers(2, 4), st.booleans())
TREES = st.recursive(DENSE, _wrapped, max_leaves=4)
OURS = DENSE.map(lambda x: sa.TwoTensor(x, x + 1))
VALUES = st.lists(
    st.one_of(TREES, TREES, OURS, DENSE.map(torch.nn.Parameter), st.integers(0, 9), st.just(None)), max_size=5
)


def fakes_of(values: Sequence[Any], symbolic: bool) -> list[Any]:
    """The same of fake tensors, as AOTAutograd describes them."""
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        context = None if not symbolic else StatelessSymbolicContext([DimDynamic.DYNAMIC] * value.dim())
        if symbolic and is_traceable_wrapper_subclass(value):
            names, meta = value.__tensor_flatten__()  # type: ignore[attr-defined]
            inner = {name: fake(getattr(value, name)) for name in names}
            first = next(iter(inner.values()))
            return type(value).__tensor_unflatten__(inner, meta, first.size(), first.stride())  # type: ignore[attr-defined]
        return mode.from_tensor(value, symbolic_context=context, static_shapes=not symbolic)

    return [fake(value) for value in values]


def input_info(mutated: bool, requires_grad: bool = False) -> schemas.InputAliasInfo:
    return schemas.InputAliasInfo(
        is_leaf=True, mutates_data=mutated, mutates_metadata=False, mutations_hidden_from_autograd=False,
        mutations_under_no_grad_or_inference_mode=False, mutation_inductor_storage_resize=False,
        mutates_storage_metadata=False, requires_grad=requires_grad, keep_input_mutations=False,
    )  # fmt: skip


def output_info(requires_grad: bool = True) -> schemas.OutputAliasInfo:
    return schemas.OutputAliasInfo(
        schemas.OutputType.non_alias, torch.Tensor, None, set(), requires_grad, requires_grad
    )


def view_and_mutation_meta(
    inputs: Sequence[Any], outputs: Sequence[Any] = (), tangents: Sequence[Any] = (), **fields: Any
) -> schemas.ViewAndMutationMeta:
    """AOTAutograd's own metadata."""
    given: dict[str, Any] = {
        "input_info": [input_info(False) for _ in inputs],
        "output_info": [output_info() for _ in outputs],
        "num_intermediate_bases": 0,
        "keep_input_mutations": False,
        "traced_tangents": [],
        "traced_tangents_descs": [],
        "subclass_inp_meta": list(inputs),
        "subclass_fw_graph_out_meta": list(outputs),
        "subclass_tangent_meta": list(tangents),
    }
    return schemas.ViewAndMutationMeta(**{**given, **fields})
