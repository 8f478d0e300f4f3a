"""A place for a function that a module above defines."""

from __future__ import annotations

import pytest

from subclass_aot.base.later import Later, Registry, promises


def test_it_calls_what_was_put_there() -> None:
    place: Later[[int], int] = Later("double")
    with pytest.raises(RuntimeError, match="double is not defined yet: import subclass_aot"):
        place(1)

    @place.put
    def double(x: int) -> int:
        return 2 * x

    assert place(4) == double(4) == 8


def test_a_module_that_was_promised_is_imported_at_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    place: Later[[], object] = Later("nothing")
    monkeypatch.setitem(promises, "nothing", "tests.classes")
    with pytest.raises(RuntimeError, match="nothing is not defined yet"):  # it is imported, and puts nothing here
        place()
    things: Registry[int] = Registry("thing")
    monkeypatch.setitem(promises, "thing one", "tests.no_such_module")
    assert "one" in things and list(things) == ["one"] and len(things) == 1 and "two" not in things
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        things["one"]
    things["one"] = 1
    assert things["one"] == 1 and list(things) == ["one"]
    with pytest.raises(KeyError, match="two"):
        things["two"]
    del things["one"]
    monkeypatch.delitem(promises, "thing one")
    assert not things
