"""What is read of the schemas of operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot.base.operators import argument_at, effects_of, without_out

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("func", "written", "returned", "viewed"),
    [
        (aten.add.Tensor, set(), (), ""),
        (aten.add_.Tensor, {"self"}, ("self",), ""),
        (aten.add.out, {"out"}, ("out",), ""),
        (aten.t.default, set(), (), "self"),
        (aten.unbind.int, set(), (), "self"),
        (aten._foreach_add_.Scalar, {"self"}, (), ""),
        (aten._native_batch_norm_legit.default, {"running_mean", "running_var"}, (), ""),
    ],
)
def test_aliasing(func: Any, written: set[str], returned: tuple[str, ...], viewed: str) -> None:
    effects = effects_of(func)
    assert (effects.written, effects.returned, effects.viewed) == (written, returned, viewed)
    assert effects.pure == (not written and not viewed)


def test_parameters_and_returns() -> None:
    effects = effects_of(aten.index.Tensor)
    assert dict(effects.parameters) == {"self": "tensor", "indices": "list"}
    assert effects.lists == {"indices"} and effects.returns == ("tensor",)
    assert effects_of(aten.unbind.int).returns == ("list",)
    assert effects_of(aten.native_batch_norm.default).returns == ("tensor",) * 3
    assert effects_of(aten._local_scalar_dense.default).returns == ("other",)


def test_what_is_written_and_not_read() -> None:
    for func in (aten.add.out, aten.zero_.default, aten.fill_.Tensor, aten.copy_.default, aten.bernoulli_.float):
        assert effects_of(func).overwrites == effects_of(func).written
    for func in (aten.add_.Tensor, aten.rrelu_with_noise_.default, aten._native_batch_norm_legit.default):
        assert effects_of(func).written and not effects_of(func).overwrites


def test_arguments_by_name_and_by_position() -> None:
    effects = effects_of(aten.add.out)
    bound = effects.bind((1, 2), {"out": 3})
    assert bound == {"self": 1, "other": 2, "out": 3}
    (written,) = effects.writes
    assert argument_at(written, (1, 2), {"out": 3}) == 3


def test_an_operator_that_writes_into_out_has_one_that_returns() -> None:
    assert without_out(aten.mm.out) is aten.mm.default
    assert without_out(aten.mm.default) is None
