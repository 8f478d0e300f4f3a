"""Which parts run natively: what the environment says, what is found, and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import subclass_aot as sa
from subclass_aot.base import hooks
from subclass_aot.native import accelerated

PARTS = """
from subclass_aot import _native, hooks
from subclass_aot.native import accelerated
print([part for part in accelerated.PARTS if part != "exact" and _native.accelerator(part)], hooks.one_call_pays)
"""


def run(said: str | None, program: str = PARTS, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SUBCLASS_AOT_NATIVE"} | more
    if said is not None:
        environment["SUBCLASS_AOT_NATIVE"] = said
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    "said, parts",
    [
        (None, ["modes", "recipes", "tables", "nodes", "graphs", "kernels", "leaves", "products", "memory"]),
        ("1", ["modes", "recipes", "tables", "nodes", "graphs", "kernels", "leaves", "products", "memory"]),
        ("0", []),
        ("", []),
        ("exact", []),
        ("recipes, tables", ["recipes", "tables"]),
    ],
)
def test_the_environment_chooses(built: ModuleType, said: str | None, parts: list[str]) -> None:
    done = run(said)
    exact = hooks.one_call_pays and (said in (None, "1", "exact"))
    assert done.stdout.strip() == f"{parts} {exact}", done.stderr


def test_an_unknown_part() -> None:
    done = run("recipes,kernel")
    assert done.returncode and "there is no part 'kernel'; give 0, 1, or some of exact, modes" in done.stderr


HIDE = "import torch; torch.version.git_version = 'another'\n"  # what was built is for another torch


def test_wanted_and_not_there() -> None:
    program = HIDE + "import subclass_aot; print(subclass_aot.show_config())"
    done = run("1", program)
    assert done.returncode and "SUBCLASS_AOT_NATIVE=1 wants the accelerator, and it is not built for" in done.stderr
    assert "python -m subclass_aot build-native" in done.stderr
    done = run(None, program)
    assert not done.returncode and "recipes (making wrappers of inner tensors): Python" in done.stdout
    assert "There is no accelerator: it is not built for torch" in done.stdout


def test_a_file_that_is_no_library_is_passed_over(built: ModuleType, tmp_path: os.PathLike[str]) -> None:
    program = HIDE + (
        "import hashlib; from subclass_aot.native import build, cache\n"
        "cache.folder().mkdir(parents=True)\n"
        "file = cache.folder() / build.file_name()\n"
        "file.write_bytes(b'no library')\n"
        "build.digest_file(file).write_text(hashlib.sha256(b'no library').hexdigest())\n"
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert not run("0", program, **environment).returncode
    done = run(None, HIDE + "import subclass_aot as sa; print(sa.show_config())", **environment)
    assert not done.returncode and "cannot be loaded" in done.stdout


def test_show_config() -> None:
    lines = sa.show_config().splitlines()
    assert lines[0] == f"subclass_aot {sa.__version__}, torch {sys.modules['torch'].__version__}"
    for part, line in zip(accelerated.PARTS, lines[1:], strict=False):
        assert line.startswith(f"{part} (") and line.split(": ")[-1] in ("C", "C++", "Python")


def test_where_the_packages_own_cannot_be_loaded_that_of_the_cache_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for place in (tmp_path / "package", tmp_path / "cache"):
        place.mkdir()
        (place / "accelerator").write_text("")
    own, kept = (tmp_path / place / "accelerator" for place in ("package", "cache"))
    monkeypatch.setattr(accelerated, "__file__", str(tmp_path / "package" / "accelerated.py"))
    monkeypatch.setattr(accelerated.build, "file_name", lambda: "accelerator")
    monkeypatch.setattr(accelerated.cache, "find", lambda name: kept)
    module = ModuleType("accelerator")

    def load(file: Path) -> ModuleType:
        if file == own:
            raise ImportError("GLIBC_2.99 not found")
        return module

    monkeypatch.setattr(accelerated, "load", load)
    find = accelerated.find.__wrapped__
    assert find() == (module, str(kept))
    monkeypatch.setattr(accelerated.cache, "find", lambda name: None)
    assert find() == (None, f"{own} cannot be loaded: GLIBC_2.99 not found")
