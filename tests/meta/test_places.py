"""What `meta` meets of some programs, and others define: each place has somebody who fills it."""

from __future__ import annotations

import importlib

import pytest

import subclass_aot  # noqa: F401  # which has the promises
from subclass_aot.base.later import Later, promises
from subclass_aot.meta import places

PLACES = {name: place for name, place in vars(places).items() if isinstance(place, Later)}


@pytest.mark.every_case
@pytest.mark.parametrize("name", PLACES)
def test_a_place_is_filled_by_whom_the_table_names(name: str) -> None:
    importlib.import_module(promises[name])
    assert PLACES[name]._function is not None


def test_a_place_without_anybody() -> None:
    assert Later("nobody's", lambda x: x + 1)(1) == 2
    with pytest.raises(RuntimeError, match="nobody's is not defined yet"):
        Later("nobody's")(1)
