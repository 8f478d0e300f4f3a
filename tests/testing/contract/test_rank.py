"""A rank reads its task, and tells of each program when it is settled."""

from __future__ import annotations

import datetime
import json
import pickle
from pathlib import Path

import pytest

from subclass_aot.testing.contract import processes, rank
from tests.testing.contract.makers import held


def test_a_rank_tells_of_each_program_and_gives_up_where_it_raises_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(trial: object, rank: object) -> None:
        raise AssertionError(f"as {rank.number}")  # type: ignore[attr-defined]

    monkeypatch.setattr(processes, "PROGRAMS", {"first": lambda trial, rank: None, "second": broken, "third": broken})
    monkeypatch.setattr(processes, "_PATIENCE", datetime.timedelta(seconds=0.1))
    monkeypatch.setattr(rank.distributed, "init_process_group", lambda *args, **options: None)
    (tmp_path / "task").write_bytes(
        pickle.dumps((pickle.dumps((held, None)), processes.__name__, ["first", "second", "third"]))
    )
    rank.main(1, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "rank 1").read_text().splitlines()]
    assert [[name, verdict, why] for name, _, verdict, why in lines] == [
        ["first", "kept", ""],
        ["second", "raises", "AssertionError: as 1"],
    ]
    assert lines[0][1] <= lines[1][1]
