"""Tables of modules that are other ones in other threads."""

from __future__ import annotations

import copy

from subclass_aot.tables.of_thread import ThreadTable
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
