"""Which kind operators are of."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from subclass_aot import ops
from subclass_aot.base import _torch
from subclass_aot.base.operators import MOVES, OperatorKind, effects_of, kind_of, kinds

aten = torch.ops.aten

OF_KIND = {
    OperatorKind.POINTWISE: [
        aten.add.Tensor, aten.mul.Scalar, aten.where.self, aten.pow.Scalar, aten.lerp.Tensor, aten.eq.Tensor,
        aten.sigmoid_backward.default, aten.masked_fill.Scalar, aten.addcdiv.default, aten._conj_physical.default,
        aten.leaky_relu.default,
    ],
    OperatorKind.REDUCTIONS: [
        aten.sum.default, aten.sum.dim_IntList, aten.mean.dim, aten.amax.default, aten.max.default, aten.max.dim,
        aten.argmin.default, aten.any.dims, aten.all.default, aten.var.correction, aten.std_mean.correction,
        aten.prod.dim_int, aten.logsumexp.default, aten.linalg_vector_norm.default, aten.median.default,
        aten.nanmedian.dim, aten.mode.default, aten.kthvalue.default, aten.count_nonzero.default, aten.aminmax.default,
    ],
    OperatorKind.FACTORIES: [
        aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default, aten.full_like.default,
        aten.rand_like.default, aten.randn_like.generator, aten.randint_like.Tensor, aten.new_zeros.default,
        aten.new_full.default, aten.new_empty_strided.default, aten.zeros.default, aten.arange.start_step,
    ],
    OperatorKind.IN_PLACE: [
        aten.add_.Tensor, aten.mul_.Scalar, aten.lerp_.Scalar, aten.addcdiv_.default, aten.zero_.default,
        aten.index_put_.default, aten.normal_.default, aten.addmm_.default, aten.masked_fill_.Tensor,
    ],
    OperatorKind.VIEWS: [
        aten.t.default, aten.view.default, aten.expand.default, aten.split.Tensor, aten.unbind.int, aten.select.int,
        aten.as_strided.default, aten.view.dtype, aten._unsafe_view.default, aten.diagonal.default,
    ],
    None: [
        aten.clone.default, aten.copy_.default, aten.detach.default, aten.alias.default, aten._to_copy.default,  # as is
        aten.linear.default, aten.reshape.default, aten.square.default, aten.std.default,  # composite
        aten.add.out, aten.sum.IntList_out, aten.max.dim_max,  # out=
        aten.t_.default, aten.resize_.default, aten.set_.source_Tensor, aten.squeeze_.dim,  # sizes in place
        aten.equal.default, aten.frexp.Tensor, aten._local_scalar_dense.default,  # not one tensor
        aten._foreach_add_.Scalar, aten._foreach_add.Scalar, aten._fused_adam_.default,  # lists
        aten.mm.default, aten.cumsum.default, aten.sort.default, aten._softmax.default, aten.cat.default,
        aten.copy.default, aten._conj.default, aten._neg_view.default, aten.linspace.Tensor_Scalar, aten.index.Tensor,
        torch.ops.higher_order.cond, "output",
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", OF_KIND, ids=str)
def test_kinds_of_operators(kind: OperatorKind | None) -> None:
    assert {func: kind_of(func) for func in OF_KIND[kind]} == dict.fromkeys(OF_KIND[kind], kind)


def test_reductions_are_those_of_the_schema_where_torch_has_no_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.11 to 2.15 must agree, and not all have the tag."""
    monkeypatch.setattr(_torch.operators, "has_reduction_tag", lambda func: False)
    of_aten = [func for func in _torch.operators.registered_operators() if func.namespace == "aten"]
    assert len(of_aten) > 2000
    without = {func for func in of_aten if kinds._read(func, effects_of(func)) is OperatorKind.REDUCTIONS}
    assert without == {func for func in ops.reductions if func.namespace == "aten"}


def _declared(func: Any) -> str:
    return str(_torch.operators.schema_of(func))


def test_what_schemas_say_of_each_kind() -> None:
    """All operators of torch, by the text of their schemas: another reading than that of the kinds."""
    for func in _torch.operators.registered_operators():
        kind, text = kind_of(func), _declared(func)
        if kind is None:
            continue
        arguments, results = text.rsplit(" -> ", 1)
        assert func not in MOVES and not _torch.operators.can_decompose(func) and func.namespace != "c10d"
        assert kind is OperatorKind.IN_PLACE or "!)" not in text, text
        if kind is OperatorKind.IN_PLACE:
            assert re.search(r"\(Tensor\(a\d?!\)", arguments) and re.fullmatch(r"Tensor\(a\d?!\)( \w+)?", results), text
        elif kind is not OperatorKind.VIEWS:
            assert "(a" not in text and re.fullmatch(r"Tensor|\((Tensor( \w+)?(, )?)+\)", results), text
        elif func is not aten._unsafe_view.default:
            assert "(a" in arguments and re.search(r"\((\w\|)?a\W", results), text


def test_reductions_reduce() -> None:
    """Called on a matrix, they make both dims go, or the second."""
    x, tried = torch.rand(2, 3), 0
    known = {"dim": 1, "k": 1, "p": 2.0, "ord": 2.0, "keepdim": False, "dtype": torch.float32}
    for func in ops.reductions:
        if func.namespace != "aten" or func.name().startswith(("aten::_sparse", "aten::native_norm", "aten::_aminmax")):
            continue
        asked = [a for a in _torch.operators.schema_of(func).arguments[1:] if not a.has_default_value()]
        given = {a.name: [1] if "List" in str(a.type) else known[a.name] for a in asked}
        out = func(x.bool() if func.overloadpacket.__name__ in ("any", "all") else x, **given)
        first = out[0] if isinstance(out, tuple) else out
        assert first.shape in ((), (2,)), func
        tried += 1
    assert tried > 30


def test_a_custom_operator_is_of_the_kind_that_its_schema_and_tags_say() -> None:
    library = torch.library.Library("of_kinds", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor", tags=(torch.Tag.pointwise,))
    library.define("spread(Tensor x, int[]? dim=None, bool keepdim=False) -> Tensor")
    library.define("scale_(Tensor(a!) x, float by) -> Tensor(a!)")
    library.define("halves(Tensor(a) x) -> Tensor(a)[]")
    library.define("noise_like(Tensor self, *, ScalarType? dtype=None, Device? device=None) -> Tensor")
    library.define("untold(Tensor x) -> Tensor")
    mine = torch.ops.of_kinds
    found = [
        kind_of(op.default) for op in (mine.twice, mine.spread, mine.scale_, mine.halves, mine.noise_like, mine.untold)
    ]
    K = OperatorKind
    assert found == [K.POINTWISE, K.REDUCTIONS, K.IN_PLACE, K.VIEWS, K.FACTORIES, None]


def test_an_operator_whose_library_is_gone_is_of_no_kind() -> None:
    with torch.library._scoped_library("test_kinds", "DEF") as library:
        library.define("gone(Tensor x) -> Tensor", tags=[torch.Tag.pointwise])
        torch.library.register_fake("test_kinds::gone", lambda x: torch.empty_like(x))
        assert sum(func.namespace == "test_kinds" for func in _torch.operators.registered_operators()) == 1
    assert list(ops.pointwise)
