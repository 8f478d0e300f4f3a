"""Tables of modules that are other ones in other threads."""

from __future__ import annotations

import copy

import pytest
from torch import nn

from subclass_aot.engine.tables.of_thread import ThreadTable, tables_of_this_thread
from tests.meanwhile import elsewhere


def test_a_table_is_a_dict_of_each_thread() -> None:
    table = ThreadTable({"a": 1})
    table["b"] = 2
    assert elsewhere(lambda: (dict(table), "b" in table, len(table), list(table.items()))) == (
        {"a": 1},
        False,
        1,
        [("a", 1)],
    )
    elsewhere(lambda: table.update(c=3))
    assert table == {"a": 1, "b": 2} and table.table == {"a": 1, "c": 3} and elsewhere(lambda: table.pop("c")) == 3
    assert copy.deepcopy(table) == {"a": 1, "b": 2} and type(copy.deepcopy(table)) is dict
    assert table | {"d": 4} == {"a": 1, "b": 2, "d": 4} and list(reversed(table)) == ["b", "a"]
    table.end()
    assert table == {"a": 1}


def test_modules_get_their_tensors_back() -> None:
    layer = nn.Sequential(nn.BatchNorm1d(2))
    norm, weight, tables = layer[0], layer[0].weight, dict(vars(layer[0]))
    with pytest.raises(ZeroDivisionError), tables_of_this_thread(layer.modules()):
        norm._parameters["weight"] = None
        del norm._buffers["running_mean"]
        layer._modules["more"] = nn.ReLU()
        assert norm.weight is None and len(layer) == 2 and elsewhere(lambda: norm.weight is weight and len(layer) == 1)
        _ = 1 / 0
    assert norm.weight is weight and len(layer) == 1
    assert all(vars(norm)[name] is table for name, table in tables.items())


def test_lists_of_recurrent_layers() -> None:
    layer = nn.GRU(2, 2)
    mine, own = layer._flat_weights, list(layer._flat_weights)
    with tables_of_this_thread([layer]):
        mine[:] = [None] * 4
        assert layer._flat_weights is mine and elsewhere(lambda: layer._flat_weights) == own
        elsewhere(lambda: setattr(layer, "_flat_weights", own[::-1]))
        assert layer._flat_weights is mine
    assert layer._flat_weights == own[::-1] and "_flat_weights" not in vars(nn.RNNBase)
