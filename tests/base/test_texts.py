"""Texts that are to be read."""

from __future__ import annotations

import functools
import pickle

from subclass_aot.base.texts import Text, called, counted


def test_a_prompt_shows_a_text_as_print_does() -> None:
    text = Text("a\n  b")
    assert repr(text) == "a\n  b" == text and isinstance(text, str)
    assert pickle.loads(pickle.dumps(text)) == text and hash(text) == hash("a\n  b")


def test_one_is_no_plural() -> None:
    assert [counted(n, "graph") for n in (0, 1, 1200)] == ["0 graphs", "1 graph", "1,200 graphs"]


def test_a_function_that_a_function_has_made_is_called_by_it() -> None:
    def inner() -> None: ...

    assert called(inner) == "test_a_function_that_a_function_has_made_is_called_by_it"
    assert called(Text.__repr__) == "Text.__repr__" and called(functools.partial(inner)) == "partial"
