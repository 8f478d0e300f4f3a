"""The user's cache of extensions: where it is, whom it trusts, and what is built at the same time or only half."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from subclass_aot.native import build, cache

LONG = pytest.mark.long
IS_ROOT = os.name == "posix" and os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="only root gives files to other users")
SHOW = "import subclass_aot as sa; print(sa.show_config())"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, which is empty."""
    root = tmp_path / "cache"
    root.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    return root


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiler that takes no time: it copies what a real one made once."""
    if build.compiler() is None:
        pytest.skip("there is no C++ compiler to build an extension with")
    folder = tmp_path_factory.mktemp("compiler")
    made = build.build_exact(folder)
    script = folder / "compiler"
    script.write_text(f'#!/bin/sh\necho run >> {folder}/runs\nfor last; do :; done\nsleep 0.2\ncp {made} "$last"\n')
    script.chmod(0o755)
    return script


@pytest.fixture
def kept(home: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An extension in the cache, as it should be."""
    monkeypatch.setenv("CXX", str(small))
    file = cache.build_exact()
    assert cache.find(file.name) == file
    return file


def run(program: str, *before: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, "SUBCLASS_AOT_NATIVE": "exact"} | environment
    given = {name: value for name, value in whole.items() if value is not None}
    return subprocess.run([*before, sys.executable, "-c", program], capture_output=True, text=True, env=given)


def why_not(file: Path) -> str:
    with pytest.raises(cache.CacheError) as refused:
        cache.find(file.name)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# ---- where it is


def test_the_cache_is_where_the_system_keeps_such_things(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "subclass_aot"
    for without in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", without)
        assert cache.folder() == Path.home() / ".cache" / "subclass_aot"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine")))
    for look in (cache.folder, cache.build_exact, lambda: cache.find("x")):
        with pytest.raises(cache.CacheError, match="XDG_CACHE_HOME is not set, and user .* has no home"):
            look()
    with pytest.raises(cache.CacheError, match="XDG_CACHE_HOME=/a/folder python -m subclass_aot build-native"):
        cache.build_accelerator()


def test_what_cannot_be_loaded_is_built_again(kept: Path) -> None:
    kept.write_bytes(b"of another machine")  # with the right digest
    build.digest_file(kept).write_text(hashlib.sha256(b"of another machine").hexdigest())
    assert cache.find(kept.name) == kept
    assert cache.build_exact() == kept and kept.read_bytes() != b"of another machine"
    before = kept.stat().st_mtime_ns
    assert cache.build_exact() == kept and kept.stat().st_mtime_ns == before


def test_folders_are_made_for_the_user_alone(kept: Path, home: Path) -> None:
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert kept.stat().st_mode & 0o777 == 0o755


def test_below_folders_that_are_not_there(tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "one" / "two"))
    monkeypatch.setenv("CXX", str(small))
    before = os.umask(0o002)  # as where each user has a group
    try:
        made = cache.build_exact()
    finally:
        os.umask(before)
    assert cache.find(made.name) == made
    assert [(tmp_path / path).stat().st_mode & 0o777 for path in ("one", "one/two")] == [0o700, 0o700]


# ---- whom it trusts


@pytest.mark.every_case
@pytest.mark.parametrize("which", ["file", "folder", "cache"])
@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_what_others_may_write_is_not_loaded(which: str, mode: int, kept: Path, home: Path) -> None:
    place = {"file": kept, "folder": kept.parent, "cache": home}[which]
    place.chmod(mode)
    assert why_not(kept) == f"{place} may be written by others (mode {mode:04o}): chmod go-w {place}"
    if which == "file":
        assert cache.build_exact() == kept and cache.find(kept.name)
    else:
        with pytest.raises(
            cache.CacheError, match=r"chmod go-w .*; to build elsewhere, name a folder: XDG_CACHE_HOME="
        ):
            cache.build_exact()


@as_root
@pytest.mark.every_case
@pytest.mark.parametrize("which", ["file", "folder", "cache"])
def test_what_others_own_is_not_loaded(which: str, kept: Path, home: Path) -> None:
    place = {"file": kept, "folder": kept.parent, "cache": home}[which]
    os.chown(place, 12345, 12345)
    assert f"{place} belongs to user 12345, and neither to user 0" in why_not(kept)
    if which == "file":
        assert cache.build_exact() == kept and cache.find(kept.name)
    else:
        with pytest.raises(cache.CacheError, match="belongs to user 12345"):
            cache.build_exact()


def test_a_shared_folder_above_in_which_nobody_renames(kept: Path, home: Path) -> None:
    home.chmod(0o1777)
    assert cache.find(kept.name) == kept
    kept.parent.chmod(0o1777)
    assert "may be written by others (mode 1777)" in why_not(kept)


@pytest.mark.every_case
@pytest.mark.parametrize("link", ["file", "folder", "cache"])
def test_a_link_is_what_it_points_at(link: str, kept: Path, home: Path, tmp_path: Path) -> None:
    at = {"file": kept, "folder": kept.parent, "cache": home}[link]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    target = elsewhere / at.name
    shutil.move(at, target)
    at.symlink_to(target)
    assert cache.find(kept.name) == kept
    if link != "cache":
        elsewhere.chmod(0o777)
        assert f"{elsewhere} may be written by others" in why_not(kept)
        elsewhere.chmod(0o700)
    target.chmod(0o777)
    assert "may be written by others" in why_not(kept)
    if IS_ROOT:
        target.chmod(0o755)
        os.lchown(at, 12345, 12345)
        assert f"{at} belongs to user 12345" in why_not(kept)


def test_links_that_lead_nowhere(kept: Path) -> None:
    kept.unlink()
    kept.symlink_to(kept.with_name("absent"))
    assert cache.find(kept.name) is None
    kept.unlink()
    kept.symlink_to(kept)
    assert "Too many levels of symbolic links" in why_not(kept)
    assert cache.build_exact() == kept and not kept.is_symlink()


# ---- what is whole


def test_a_file_that_was_cut_off_is_not_loaded(kept: Path, small: Path) -> None:
    """To load it would end the process, by a SIGBUS."""
    os.truncate(kept, 5000)
    assert why_not(kept) == f"{kept} is damaged: it is not what was built there, by the digest beside it"
    done = run(HIDE + SHOW)
    assert not done.returncode, done.stderr
    assert f"There is no extension in C: {kept} is damaged" in done.stdout
    assert "exact (comparing and setting many Python objects at once): Python" in done.stdout
    assert cache.build_exact() == kept and cache.find(kept.name) == kept
    done = run(HIDE + SHOW)
    assert "exact (comparing and setting many Python objects at once): C\n" in done.stdout, done.stderr


HIDE = (  # what the installation has built
    "from importlib.machinery import PathFinder\n"
    "find = PathFinder.find_spec\n"
    "hidden = 'subclass_aot.native._exact'\n"
    "PathFinder.find_spec = lambda name, *args: None if name == hidden else find(name, *args)\n"
)


@pytest.mark.every_case
@pytest.mark.parametrize("digest", [None, "", "0" * 64, "\xff"])
def test_a_digest_that_is_missing_or_wrong(digest: str | None, kept: Path) -> None:
    beside = build.digest_file(kept)
    beside.unlink()
    if digest is not None:
        beside.write_bytes(digest.encode("latin-1"))
    assert ("has no digest beside it" if digest is None else "is damaged") in why_not(kept)
    assert cache.build_exact() == kept and cache.find(kept.name)


# ---- who builds


BUILD_ALONE = (  # as `setup.py` does it, and without torch, of which this extension knows nothing
    "import runpy, sys, types, pathlib\n"
    "sys.modules['torch'] = types.ModuleType('torch')\n"
    f"globals().update(runpy.run_path({build.__file__!r})); place = pathlib.Path(sys.argv[1])"
)


def test_processes_that_build_at_once(home: Path, small: Path) -> None:
    runs = small.with_name("runs")
    runs.unlink(missing_ok=True)
    place = home / "subclass_aot"
    program = f"{BUILD_ALONE}; file = build_exact(place); print(file, is_whole(file))"
    command = [sys.executable, "-c", program, str(place)]
    environment = {**os.environ, "CXX": str(small)}
    many = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(4)]
    file = place / build.exact_file_name()
    assert [process.communicate(timeout=120)[0] for process in many] == [f"{file} True\n"] * 4
    assert runs.read_text() == "run\n"
    assert {path.name for path in file.parent.iterdir()} == {".building", file.name, build.digest_file(file).name}


def test_a_build_that_was_killed_leaves_nothing_that_is_taken_for_built(
    home: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(
        f'#!/bin/sh\nfor last; do :; done\nhead -c 6000 {build.EXACT} > "$last"\necho half\nexec sleep 60\n'
    )
    slow.chmod(0o755)
    heard = "whole = subprocess.run; subprocess.run = lambda *args, **more: whole(*args, text=True)"
    place = home / "subclass_aot"
    command = [sys.executable, "-c", f"{BUILD_ALONE}\n{heard}\nbuild_exact(place)", str(place)]
    environment = {**os.environ, "CXX": str(slow)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as building:
        assert building.stdout and building.stdout.readline() == "half\n"
        os.killpg(building.pid, signal.SIGKILL)
    place.chmod(0o700)
    file = place / build.exact_file_name()
    assert cache.find(file.name) is None and list(file.parent.glob(".scratch-*/*"))
    monkeypatch.setenv("CXX", str(small))
    assert cache.build_exact() == file and cache.find(file.name)
    assert not list(file.parent.glob(".scratch-*"))


@pytest.mark.every_case
@pytest.mark.parametrize("after", ["nothing", "the extension"])
def test_a_build_that_ended_between_its_two_files(
    after: str, home: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(small))
    publish, done = build._publish, []

    def stop(made: Path, target: Path) -> None:
        if after == "nothing" or done:
            raise KeyboardInterrupt
        done.append(target)
        publish(made, target)

    monkeypatch.setattr(build, "_publish", stop)
    with pytest.raises(KeyboardInterrupt):
        cache.build_exact()
    monkeypatch.setattr(build, "_publish", publish)
    file = home / "subclass_aot" / build.exact_file_name()
    if done:
        assert "has no digest beside it" in why_not(file)
    else:
        assert cache.find(file.name) is None
    assert cache.build_exact() == file and cache.find(file.name)


# ---- where nothing can be read or written

PLAIN = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if IS_ROOT else ()
"""Takes from root what other users have not: to read and write everything."""
NAMELESS = (
    *("setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"),
    *(f"--{kind}=-all,+dac_read_search" for kind in ("inh-caps", "bounding-set")),
    "--ambient-caps=+dac_read_search",  # where Python itself may stand in a home
)
needs_setpriv = pytest.mark.skipif(IS_ROOT and not shutil.which("setpriv"), reason="root needs setpriv to be no root")

BUILD = "\nfrom subclass_aot.__main__ import main; raise SystemExit(main(['build-native']))"


@needs_setpriv
@pytest.mark.every_case
@pytest.mark.parametrize(
    "home", ["unreadable", "read-only", *(pytest.param(x, marks=LONG) for x in ("file", "absent"))]
)
def test_a_home_that_is_no_home(home: str, tmp_path: Path) -> None:
    place = tmp_path / "home"
    if home == "file":
        place.write_text("no folder")
    else:
        place.mkdir()
    closed: Any = {"unreadable": 0o000, "read-only": 0o555, "absent": 0o555}.get(home)
    where = place / "user" if home == "absent" else place
    if closed is not None:
        place.chmod(closed)
    try:
        environment = {"HOME": str(where), "XDG_CACHE_HOME": None, "SUBCLASS_AOT_NATIVE": None}
        done = run(HIDE + NO_ACCELERATOR + SHOW + BUILD, *PLAIN, **environment)
    finally:
        place.chmod(0o755)
    why = "cannot be read: Permission denied" if home == "unreadable" else "it is not built for"
    assert why in done.stdout and "exact (comparing and setting many Python objects at once): Python" in done.stdout
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert str(place) in done.stderr and "XDG_CACHE_HOME=/a/folder python -m" in done.stderr


NO_ACCELERATOR = "import torch; torch.version.git_version = 'another'\n"


@as_root
@needs_setpriv
def test_a_user_without_a_name() -> None:
    environment = {"HOME": None, "XDG_CACHE_HOME": None, "SUBCLASS_AOT_NATIVE": None, "PYTHONDONTWRITEBYTECODE": "1"}
    done = run(HIDE + NO_ACCELERATOR + SHOW + BUILD, *NAMELESS, **environment)
    why = "there is no folder for what is built: XDG_CACHE_HOME is not set, and user 12345 has no home."
    assert f"There is no accelerator, and no extension in C: {why}\n" in done.stdout, done.stderr
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "user 12345 has no home; to build elsewhere, name a folder: XDG_CACHE_HOME=" in done.stderr


def test_a_file_that_cannot_be_read(kept: Path) -> None:
    if IS_ROOT and not shutil.which("setpriv"):
        pytest.skip("root needs setpriv to be no root")
    kept.chmod(0o000)
    done = run(HIDE + SHOW, *PLAIN)
    assert f"{kept} cannot be read: Permission denied" in done.stdout, done.stderr
