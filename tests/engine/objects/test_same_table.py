"""Long lists and dicts of plain values are compared to the last bit, by one call where they hold the very same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from subclass_aot.base import exact, hooks
from subclass_aot.engine.objects.same_table import SameTable

NAN = float("nan")


@pytest.mark.parametrize("keys", [None, ["a", "b", "c"]])
@pytest.mark.parametrize("in_c", [True, False])
@pytest.mark.parametrize(
    "values, same, others",
    [
        ([1, 2, 3], [1, 2, 3], [[1, 2, 4], [1.0, 2, 3], [True, 2, 3], [1, 2], [1, 2, 3, 4], [2, 1, 3]]),
        ([0.0, 1.5, 2.5], [0.0, 1.5, 2.5], [[-0.0, 1.5, 2.5], [0, 1.5, 2.5], [0.0, 1.5, 2.0]]),
        ([NAN, 1.0, 2j], [float("nan"), 1.0, 2j], [[1.0, NAN, 2j], [NAN, 1.0, complex(-0.0, 2)]]),
        (["a", None, b"c"], ["".join("a"), None, b"c"], [["b", None, b"c"], ["a", 0, b"c"], ["a", None, "c"]]),
    ],
)
def test_what_is_the_same(
    values: list[Any], same: list[Any], others: list[list[Any]], keys: Any, in_c: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_c:
        monkeypatch.setattr(hooks, "one_call_pays", False)
        monkeypatch.setattr(hooks, "same_items", exact.same_items)

    def made(entries: Sequence[Any]) -> Any:
        return list(entries) if keys is None else dict(zip([*keys, "d"], entries, strict=False))

    table = SameTable(keys, values)
    assert table(made(values)) and table(made(same))
    assert not any(table(made(other)) for other in others)
    if keys is None:
        assert table(tuple(same)) and not table(tuple(others[0]))
    else:
        assert not table(dict(reversed(made(values).items()))) and not table({**made(values), "a": []})
