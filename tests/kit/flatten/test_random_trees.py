"""Random wrapper trees: round trips, positions, and agreement with torch."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._functorch._aot_autograd import schemas
from torch._functorch._aot_autograd import subclass_utils as oracle
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from subclass_aot.doors.aotautograd import (
    FunctionMeta,
    compute_inner_mutated_inp_indices_from_subclass_meta,
    unwrap_tensor_subclasses,
    wrap_tensor_subclasses,
)
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import (
    FlattenPlan,
    IndexMap,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
    create_subclass_meta,
    walk,
)
from tests.kit.flatten import aot


class Pack(torch.Tensor):
    """One to three inner tensors, some of them absent, and a context; as large as the first."""

    names = ("first", "second", "third")

    @staticmethod
    def __new__(cls, inner: dict[str, torch.Tensor], tag: object, size: Any, stride: Any) -> Pack:
        pack = torch.Tensor._make_wrapper_subclass(cls, size, strides=stride, dtype=inner["first"].dtype)
        for name in cls.names:
            setattr(pack, name, inner.get(name))
        pack.tag = tag
        return pack

    def __tensor_flatten__(self) -> tuple[list[str], object]:
        return [name for name in self.names if getattr(self, name) is not None], self.tag

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], tag: object, size: Any, stride: Any) -> Pack:
        return cls(inner, tag, size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.aten.detach.default:
            return NotImplemented
        (x,) = args
        inner = {name: getattr(x, name).detach() for name in x.__tensor_flatten__()[0]}
        return cls(inner, x.tag, x.size(), x.stride())


class FastPack(Pack):
    """A `Pack` that is built without its constructor."""

    @classmethod
    def __wrapper_attributes__(cls, names: tuple[str, ...], context: object) -> dict[str, object]:
        return {name: None for name in cls.names if name not in names} | {"tag": context}


class FastTwo(TwoTensor):
    """A `TwoTensor` that is built without its constructor."""

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], context: object, size: Any, stride: Any) -> torch.Tensor:
        return FastTwo(inner["a"], inner["b"], size, stride)

    @classmethod
    def __wrapper_attributes__(cls, names: tuple[str, ...], context: object) -> dict[str, object]:
        return {}


tags = st.one_of(st.none(), st.integers(), st.text(max_size=3), st.tuples(st.booleans(), st.floats(allow_nan=False)))
dense = st.sampled_from([(2, 3), (3,), (0, 2), (), (1, 4, 1)]).flatmap(
    lambda size: st.sampled_from([torch.float32, torch.int8]).map(lambda dtype: torch.ones(size, dtype=dtype))
)


def _two(inner: torch.Tensor) -> torch.Tensor:
    return TwoTensor(inner, inner)


def _fast_two(inner: torch.Tensor) -> torch.Tensor:
    return FastTwo(inner, inner)


@st.composite
def packs(draw: st.DrawFn, inner: st.SearchStrategy[torch.Tensor]) -> torch.Tensor:
    cls = draw(st.sampled_from([Pack, FastPack]))
    parts = {"first": draw(inner)}
    parts |= {name: draw(inner) for name in cls.names[1:] if draw(st.booleans())}
    first = parts["first"]
    return cls(parts, draw(tags), first.size(), first.stride())


tensors = st.recursive(
    dense,
    lambda inner: st.one_of(packs(inner), inner.map(_two), inner.map(_fast_two)),
    max_leaves=6,
)
tensor_lists = st.lists(tensors, max_size=5)
lists = st.lists(st.one_of(tensors, st.integers(), st.none(), st.text(max_size=2)), max_size=5)


def same_tree(x: Any, y: Any) -> bool:
    """Whether two values have equal classes and outer metadata all the way down, and identical leaves."""
    if not is_traceable_wrapper_subclass(x):
        return x is y
    names, context = x.__tensor_flatten__()
    attributes = {k: v for k, v in vars(x).items() if not isinstance(v, torch.Tensor)}
    return (
        type(x) is type(y)
        and y.__tensor_flatten__() == (names, context)
        and (x.shape, x.stride(), x.storage_offset(), x.dtype) == (y.shape, y.stride(), y.storage_offset(), y.dtype)
        and {k: v for k, v in vars(y).items() if not isinstance(v, torch.Tensor)} == attributes
        and all(same_tree(getattr(x, name), getattr(y, name)) for name in names)
    )


@given(lists)
def test_round_trip(values: list[Any]) -> None:
    plan = FlattenPlan.of(values)
    leaves = plan.unwrap(values)
    assert len(leaves) == len(plan.index_map.slots)
    assert not any(map(is_traceable_wrapper_subclass, leaves))
    again = plan.wrap(leaves)
    assert all(same_tree(x, y) for x, y in zip(values, again, strict=True))
    assert all(x is y for x, y in zip(plan.unwrap(again), leaves, strict=True))


@given(lists)
def test_reading_once_needs_no_generated_code(values: list[Any]) -> None:
    plan, leaves = FlattenPlan.read(values)
    assert plan == FlattenPlan.of(values)
    assert not {"unwrap", "wrap"} & vars(plan).keys()
    assert all(x is y for x, y in zip(leaves, plan.unwrap(values), strict=True))


@given(tensor_lists)
def test_a_walk_meets_each_leaf_at_its_path(values: list[torch.Tensor]) -> None:
    plan, leaves = FlattenPlan.read(values)
    met = {
        path: part
        for i, (value, meta) in enumerate(zip(values, plan.metas, strict=True))
        for path, part, _ in walk(value, meta, f"args[{i}]")
    }
    assert all(met[str(slot)] is leaf for slot, leaf in zip(plan.index_map.slots, leaves, strict=True))


@given(lists)
def test_every_index_there_and_back(values: list[Any]) -> None:
    plan = FlattenPlan.of(values)
    leaves, index_map = plan.unwrap(values), plan.index_map
    assert [slot.flat for slot in index_map.slots] == list(range(len(leaves)))
    for slot in index_map.slots:
        assert eval(slot.name("values"), {"values": values}) is leaves[slot.flat]
        assert slot.flat in index_map.flat_of(slot.outer) and index_map.outer_of(slot.flat) == slot.outer
        assert index_map.at(slot.outer, *slot.path, dim=slot.dim) is slot
        assert slot.meta is not None and slot.meta.unwrapped_idx == slot.flat
    for outer, meta in enumerate(plan.metas):
        assert len(index_map.flat_of(outer)) == meta.arg_count
        if isinstance(meta, SubclassCreationMeta):
            assert index_map.flat_of(outer).start == meta.flat_tensor_start_idx
    assert index_map.to_outer(index_map.to_flat(range(len(values)))) == [i for i, m in enumerate(plan.metas)]


@given(lists, lists)
def test_a_plan_fits_its_own_values_or_says_so(values: list[Any], others: list[Any]) -> None:
    plan = FlattenPlan.of(values)
    shape = [_classes(meta) for meta in plan.metas]
    try:
        plan.unwrap(others)
    except PlanError:
        assert shape != [_classes(meta) for meta in create_subclass_meta(others)]


def _classes(meta: InnerMeta) -> object:
    if isinstance(meta, SubclassCreationMeta):
        return meta.cls, tuple((name, _classes(inner)) for name, inner in meta.attrs.items())
    return meta.is_tensor if isinstance(meta, PlainTensorMeta) else None


# ------------------------------------------------------------------------------------------------ agreement with torch


def _fake(values: list[torch.Tensor]) -> list[torch.Tensor]:
    mode = FakeTensorMode()
    return [_rebuild(value, mode.from_tensor) for value in values]


def _rebuild(value: torch.Tensor, leaf: Any) -> torch.Tensor:
    if not is_traceable_wrapper_subclass(value):
        return leaf(value)
    names, context = value.__tensor_flatten__()
    inner = {name: _rebuild(getattr(value, name), leaf) for name in names}
    first = next(iter(inner.values()))
    return type(value).__tensor_unflatten__(inner, context, first.size(), first.stride())


def _same_meta(ours: InnerMeta, theirs: Any) -> bool:
    if isinstance(ours, PlainTensorMeta | OpaqueMeta):
        return type(theirs).__name__ == type(ours).__name__
    assert isinstance(ours, SubclassCreationMeta)
    return (
        (ours.flat_tensor_start_idx, ours.arg_count) == (theirs.flat_tensor_start_idx, theirs.arg_count)
        and ours.included_subclass_symints == theirs.included_subclass_symints
        and (ours.meta, ours.original_subclass_type) == (theirs.meta, theirs.original_subclass_type)
        and (ours.outer_size, ours.outer_stride) == (theirs.outer_size, theirs.outer_stride)
        and list(ours.attrs) == list(theirs.attrs)
        and all(_same_meta(ours.attrs[name], theirs.attrs[name]) for name in ours.attrs)
    )


def _theirs(values: list[torch.Tensor], count_symints: bool = True) -> list[Any]:
    metas = aot.create_subclass_meta(values, count_symints)
    for meta in metas:
        if isinstance(meta, schemas.SubclassCreationMeta):
            meta.make_runtime_safe()
    return metas


@given(tensor_lists, st.booleans())
def test_metas_agree_with_torch(values: list[torch.Tensor], count_symints: bool) -> None:
    fakes = _fake(values)
    ours, theirs = create_subclass_meta(fakes, count_symints=count_symints), _theirs(fakes, count_symints)
    assert all(_same_meta(x, y) for x, y in zip(ours, theirs, strict=True))
    top = [
        (x.unwrapped_idx, y.unwrapped_idx) for x, y in zip(ours, theirs, strict=True) if isinstance(x, PlainTensorMeta)
    ]
    assert all(x == y for x, y in top)


@given(tensor_lists)
def test_flat_order_agrees_with_torch(values: list[torch.Tensor]) -> None:
    metas, theirs = create_subclass_meta(values), _theirs(_fake(values))
    flat = oracle.runtime_unwrap_tensor_subclasses(values, append_symints=True, subclass_metas=theirs)
    for leaves in (
        unwrap_tensor_subclasses(values, append_symints=True, subclass_metas=metas),
        unwrap_tensor_subclasses(values, append_symints=True),
    ):
        assert all(x is y for x, y in zip(leaves, flat, strict=True))
    options = {"included_subclass_symints": True, "num_fw_outs_saved_for_bw": 1}
    saved = torch.ones(1)
    ours = wrap_tensor_subclasses([*flat, saved], subclass_metas=metas, **options)
    torchs = oracle.wrap_tensor_subclasses([*flat, saved], subclass_metas=theirs, is_runtime=True, **options)
    assert all(same_tree(x, y) for x, y in zip(torchs, ours, strict=True))


@given(st.lists(tensors.filter(lambda t: t.dim() > 0 and t.numel() > 1), min_size=1, max_size=3))
def test_symbolic_slots_agree_with_torch(values: list[torch.Tensor]) -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    symbolic = [_rebuild(value, lambda leaf: mode.from_tensor(leaf, static_shapes=False)) for value in values]
    metas = create_subclass_meta(symbolic)
    theirs = aot.unwrap(symbolic)
    for ours in (
        unwrap_tensor_subclasses(symbolic, append_symints=True, subclass_metas=metas),
        unwrap_tensor_subclasses(symbolic, append_symints=True),
    ):
        assert len(ours) == len(theirs) == sum(meta.arg_count for meta in metas)
        assert all(
            x is y if isinstance(x, torch.Tensor) else str(x) == str(y) for x, y in zip(ours, theirs, strict=True)
        )
    assert all(_same_meta(x, y) for x, y in zip(metas, _theirs(symbolic), strict=True))
    real = unwrap_tensor_subclasses(values, append_symints=True, subclass_metas=metas)
    again = wrap_tensor_subclasses(real, subclass_metas=metas, included_subclass_symints=True)
    assert all(same_tree(x, y) for x, y in zip(values, again, strict=True))


@given(tensor_lists, st.data())
def test_mutated_positions_agree_with_torch(values: list[torch.Tensor], data: st.DataObject) -> None:
    metas = create_subclass_meta(values)
    mutated = data.draw(st.lists(st.sampled_from(range(len(values))), unique=True)) if values else []
    fakes = _fake(values)
    theirs = oracle.remap_unwrapped_subclass_arg_indices(fakes, mutated)
    ours = compute_inner_mutated_inp_indices_from_subclass_meta(
        FunctionMeta(metas, mutated_inp_runtime_indices=mutated)
    )
    index_map = IndexMap.of(metas)
    assert ours == theirs == sorted(index_map.to_flat(mutated))
    written = data.draw(st.lists(st.sampled_from(range(len(index_map.slots))))) if values else []
    assert index_map.written(mutated, written) == sorted(set(ours) & set(written))
