"""Whose a module of Python is."""

from __future__ import annotations

import abc
import sys
import types
from pathlib import Path

import pytest

from subclass_aot.base import _stack
from subclass_aot.engine.tables.owners import is_users, module_of


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


@pytest.mark.parametrize(
    ("name", "file"),
    [("alone", "alone.py"), ("package", "package/__init__.py"), ("package.deep.inside", "package/deep/inside.py")],
)
def test_a_folder_that_a_package_manager_has_written(
    name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = types.ModuleType(name)
    made.__file__ = str(tmp_path / "libraries" / file)
    monkeypatch.setitem(sys.modules, name, made)
    for noted in (False, True):  # `pip install --target` leaves notes, which an editable package has elsewhere
        (tmp_path / "libraries" / ("made-1.0.dist-info" if noted else "made.egg-info")).mkdir(parents=True)
        _stack._has_installed.cache_clear()
        is_users.cache_clear()
        assert is_users(name) is not noted


class Base(abc.ABC):  # noqa: B024  # only its metaclass counts
    """A class of this file."""


def test_a_class_that_a_call_has_made_is_of_the_module_of_its_bases() -> None:
    made = abc.ABCMeta("Made", (Base,), {})
    assert made.__module__ == "abc" and module_of(made) == __name__
    assert module_of(abc.ABCMeta("Further", (made,), {})) == __name__
    assert module_of(abc.ABCMeta("OfNobody", (abc.ABC,), {})) == ""


def test_other_classes_are_of_their_module() -> None:
    assert [module_of(cls) for cls in (Base, abc.ABC, object)] == [__name__, "abc", "builtins"]
