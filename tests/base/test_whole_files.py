"""A file that cannot be finished is as it was: a full disk, a kill, an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from subclass_aot.base.whole_files import write_whole, written_beside

WRITERS = {
    "compiled": """
        compiled = sa.aot_compile(lambda x: x * 2 + 1, fw_compiler="eager")
        compiled(torch.ones(3))
        def write(path): compiled.save(path)
    """,
    "state dict": """
        def write(path): sa.files.save_file({"w": torch.ones(5000)}, path)
    """,
    "device": """
        def write(path): dataclasses.replace(sa.devices.device_of("H100"), product="n" * 5000).write(path)
    """,
    "text": """
        from subclass_aot.base.whole_files import write_whole
        def write(path): write_whole(path, "t" * 5000)
    """,
}
"""Each defines `write`, which writes more than a thousand bytes."""


def in_process(path: Path, writer: str, end: str) -> subprocess.CompletedProcess[str]:
    code = [
        "import dataclasses, os, resource, signal, sys, torch",
        "import subclass_aot as sa",
        textwrap.dedent(WRITERS[writer]),
        textwrap.dedent(end),
    ]
    command = [sys.executable, "-c", "\n".join(code), str(path)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


FULL = """
    write(sys.argv[1] + ".other")  # whatever is imported or compiled to that end
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        write(sys.argv[1])
    except Exception as error:
        print(type(error).__name__)
"""

KILLED = """
    def kill(*args): os.kill(os.getpid(), signal.SIGKILL)
    os.fsync = os.replace = kill
    write(sys.argv[1])
"""


@pytest.mark.parametrize("end", [FULL, KILLED], ids=["the disk is full", "it is killed"])
@pytest.mark.parametrize("writer", WRITERS)
def test_the_file_of_before_is_kept(writer: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_text("good")
    done = in_process(path, writer, end)
    if end is FULL:
        assert done.returncode == 0 and done.stdout.strip(), done.stderr
        assert {each.name for each in tmp_path.iterdir()} == {"file.toml", "file.toml.other"}
    else:
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert path.read_text() == "good"


def test_what_is_written_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    write_whole(path, "é")
    assert path.read_text(encoding="utf-8") == "é" and [*tmp_path.iterdir()] == [path]
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path.name)
    write_whole(link, b"two")
    assert link.is_symlink() and path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o640


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    path.write_text("good")
    with pytest.raises(ZeroDivisionError), written_beside(path) as part:
        assert part.parent == tmp_path and part.suffix == ".svg" and part != path
        part.write_text("half")
        _ = 1 / 0
    assert path.read_text() == "good" and [*tmp_path.iterdir()] == [path]


def test_what_is_no_ordinary_file_is_written_in_place(tmp_path: Path) -> None:
    write_whole(os.devnull, b"gone")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"through")
    assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    os.close(reader)
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "no folder" / "file", b"")
