"""Which operators must not run twice in a call."""

from __future__ import annotations

import torch

from subclass_aot.base import _torch
from subclass_aot.base.operators import runs_once
from tests.fuzz import effects


def test_what_runs_once() -> None:
    for op in (effects.ordered, effects.listed, effects.told, effects.counted):
        assert runs_once(op._opoverload), op
    aten = torch.ops.aten
    for func in (aten.add.Tensor, aten.add_.Tensor, aten.bernoulli.p, aten._assert_async.msg, torch.cond, None):
        assert not runs_once(func), func


def test_an_effect_may_be_registered_later_and_for_all_overloads() -> None:
    @torch.library.custom_op("test_side_effects::later", mutates_args=())
    def later(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    func = later._opoverload
    assert not runs_once(func)
    with _torch.side_effects.registered([func]):
        assert runs_once(func)
    assert not runs_once(func)
    torch.fx.node.has_side_effect(func.overloadpacket)
    assert runs_once(func) and not _torch.side_effects.has_effect(func)
