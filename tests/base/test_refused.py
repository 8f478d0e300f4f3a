"""Where something was refused."""

from __future__ import annotations

import pytest

from subclass_aot.base.refused import Refused, at


def test_places_are_noted_from_the_outside() -> None:
    with pytest.raises(Refused) as caught, at("outside"), at("inside"):
        raise Refused("it is wrong")
    assert caught.value.where == ["outside", "inside"] and caught.value.what == "it is wrong"
