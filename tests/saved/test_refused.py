"""Where something was refused."""

from __future__ import annotations

import pytest

from subclass_aot.saved.refused import Refused, at


def test_places_are_noted_from_the_outside() -> None:
    with pytest.raises(Refused) as caught, at("outside"), at("inside"):
        raise Refused("it is wrong")
    assert caught.value.where == ["outside", "inside"] and caught.value.what == "it is wrong"


def test_what_is_kept_holds_no_frames() -> None:
    with pytest.raises(Refused) as caught, at("outside"):
        raise Refused("it is wrong") from ValueError()
    bare = caught.value.bare()
    assert (bare.what, bare.where) == ("it is wrong", ["outside"])
    assert bare.__traceback__ is None and bare.__cause__ is None and bare.__context__ is None
