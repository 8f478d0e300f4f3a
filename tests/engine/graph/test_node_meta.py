"""What a node says of its value, and how nodes are called."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from subclass_aot import MetaTensor, Spec
from subclass_aot.engine.graph.node_meta import name_of, val_of
from subclass_aot.meta.symbols import Symbols


def test_a_spec_has_one_value_without_data() -> None:
    val = val_of(Spec.of(torch.ones(3, 2).t()))
    assert type(val) is MetaTensor and val.shape == (2, 3) and val.stride() == (1, 2)
    assert val_of(Spec.of(torch.zeros(3, 2).t())) is val is not val_of(Spec.of(torch.ones(2, 3)))


def test_a_value_with_symbols_and_their_solver_do_not_keep_each_other() -> None:
    symbols = Symbols()
    spec = Spec.make((symbols.size(8, "x.size(0)"),), (1,))
    val = val_of(spec)
    assert val.meta_spec is spec and val_of(spec) is val
    kept, solver = weakref.ref(val), weakref.ref(symbols.env)
    del symbols, spec, val
    for method in vars(ShapeEnv).values():  # some remember a solver, until another one is used
        getattr(method, "cache_clear", int)()
    gc.collect()
    assert kept() is None and solver() is None


@torch.library.custom_op("test_node_meta::lambda", mutates_args=())
def named_by_a_keyword(x: torch.Tensor) -> torch.Tensor:
    """Returns a copy."""
    return x.clone()


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (torch.ops.aten.add.Tensor, "add"),
        (torch.ops.aten.add_.Scalar, "add_"),
        (torch.ops.aten.max.dim, "max"),
        (torch.ops.test_node_meta.__getattr__("lambda").default, "lambda_"),
    ],
)
def test_a_node_is_called_by_its_operator(func: torch._ops.OpOverload, name: str) -> None:
    assert name_of(func) == name_of(func) == name
