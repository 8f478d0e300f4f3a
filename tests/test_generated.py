"""The generated code of ten programs does not grow."""

from __future__ import annotations

import pytest

from tests.generated import code_of, lines_of, programs


@pytest.mark.parametrize("name", programs())
def test_lines_of_code(name: str) -> None:
    program = programs()[name]
    assert 0 < lines_of(code_of(program)) <= program.most
