"""Layers import downward, and no modules lead to one another."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

import subclass_aot
from tests import house
from tests.house import KINDS, ROOT, circles, modules, place_of, upward


@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS[:2], KINDS], ids=["run", "run and lazy", "all"])
def test_there_is_no_circle(kinds: tuple[house.Kind, ...]) -> None:
    assert circles(kinds) == []


def test_no_import_runs_upward() -> None:
    """Turn one round by a place that is filled later, or by a registry below: see `base/later.py`."""
    assert upward() == []


def test_folders_at_the_top_are_the_layers_and_the_satellites() -> None:
    plan = tomllib.loads((ROOT / "tests" / "layers.toml").read_text())
    folders = {path.parent.name for path in (ROOT / house.NAME).glob("*/__init__.py")}
    assert folders == {*plan["layers"], *plan["satellites"]} and len(folders) == 13


def test_every_module_has_a_place() -> None:
    of_the_face = {"", "satellites"}  # which takes from everywhere
    assert {name for name in modules() if place_of(name) is None} == of_the_face


def test_kinds_of_imports(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An import behind a door counts as one of what is behind it, and a module's name in a text as an import."""
    texts = {
        "__init__.py": "",
        "room/__init__.py": "from subclass_aot.room.inner import f as f",
        "room/inner.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from subclass_aot.user import g",
        "user.py": "from subclass_aot.room import f\ndef g():\n    import subclass_aot.started",
        "started.py": "COMMAND = 'subclass_aot.user'",
    }
    for name, text in texts.items():
        path = tmp_path / house.NAME / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr(house, "ROOT", tmp_path)
        for cached in (house.modules, house._tree, house.arrows):
            cached.cache_clear()
        found = dict(house.arrows())
        by_kind = [house.circles(kinds) for kinds in (KINDS[:1], KINDS[:2], KINDS)]
    for cached in (house.modules, house._tree, house.arrows):
        cached.cache_clear()
    assert found == {
        ("room", "room.inner"): {"run"},
        ("room.inner", "user"): {"type"},
        ("user", "room.inner"): {"run"},
        ("user", "started"): {"lazy"},
        ("started", "user"): {"lazy"},
    }
    assert by_kind == [[], [["started", "user"]], [["room.inner", "started", "user"]]]


@pytest.mark.parametrize(
    ("path", "of_types", "real"),
    [("engine/graph/tape.py", "Tape", "Recorder"), ("kit/wrapper/kind.py", "Wrapper", "WrapperTensor")],
)
def test_what_type_checkers_see_is_there(path: str, of_types: str, real: str) -> None:
    """See Note [Types without a circle]."""
    tree = ast.parse((ROOT / house.NAME / path).read_text())
    (cls,) = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == of_types]
    names = {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
    names |= {
        node.target.id for node in cls.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert len(names) > 8
    if real == "Recorder":
        from subclass_aot.engine.graph import Recorder

        thing: object = Recorder()
    else:
        thing = subclass_aot.TwoTensor
    assert not [name for name in names if not hasattr(thing, name)]
