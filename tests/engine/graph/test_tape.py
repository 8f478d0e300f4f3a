"""When the program runs, a recorder is a stream, and nothing else stands between."""

from __future__ import annotations

from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.meta import Stream


def test_it_is_for_type_checkers_alone() -> None:
    assert Tape is Stream and Recorder.__bases__ == (Stream,)
