"""What a view of a context variable gives is what `get()` gives."""

from __future__ import annotations

from contextvars import ContextVar, copy_context

import pytest

from subclass_aot.engine.tables.holders import HOLDERS, view_of
from subclass_aot.errors import LastingChangeError
from subclass_aot.subjects.context_variables.view import ContextVariable


def test_a_value_a_default_and_none() -> None:
    plain: ContextVar[int] = ContextVar("plain")
    with_default: ContextVar[int] = ContextVar("with_default", default=2)
    assert dict(view_of(plain)) == {} and len(view_of(plain)) == 0 and view_of(plain).get("get()", "no") == "no"
    assert dict(view_of(with_default)) == {"get()": 2} and HOLDERS["_contextvars.ContextVar"] is ContextVariable

    def sets() -> None:
        view_of(plain)["get()"] = 3
        assert plain.get() == 3 and dict(view_of(plain)) == {"get()": 3}
        with pytest.raises(LastingChangeError, match="leaves context variable plain without a value"):
            del view_of(plain)["get()"]

    copy_context().run(sets)
    assert dict(view_of(plain)) == {}
