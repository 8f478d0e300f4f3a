"""Whose a module of Python is."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from subclass_aot.tables.owners import is_users


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("__main__", True),
        (__name__, True),
        ("nobody_imported_it", True),
        ("torch.nn.modules.linear", False),
        ("subclass_aot.tensors", False),
        ("json", False),
        ("builtins", False),
        ("expecttest", False),
        ("expecttest.inside", False),
        (None, False),
    ],
)
def test_whose_it_is(module: str | None, found: bool) -> None:
    import expecttest  # noqa: F401

    assert is_users(module) is found


def test_a_file_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, found in (("mine", True), ("site-packages", False), ("dist-packages", False)):
        name = f"made_in_{folder[:4]}"
        made = types.ModuleType(name)
        made.__file__ = str(tmp_path / folder / "made.py")
        monkeypatch.setitem(sys.modules, name, made)
        assert is_users(name) is found
