"""A place for a function that a module above defines."""

from __future__ import annotations

import pytest

from subclass_aot.later import Later


def test_it_calls_what_was_put_there() -> None:
    place: Later[[int], int] = Later("double")
    with pytest.raises(RuntimeError, match="double is not defined yet: import subclass_aot"):
        place(1)

    @place.put
    def double(x: int) -> int:
        return 2 * x

    assert place(4) == double(4) == 8
