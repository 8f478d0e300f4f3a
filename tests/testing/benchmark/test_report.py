"""The command, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from subclass_aot.__main__ import main
from subclass_aot.testing.benchmark.rows import COUNTS, OPERATORS
from tests.testing.benchmark import makers

HERE = makers.__name__


def _bench(target: str, tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "bench.json"
    assert main(["bench", target, "--quick", "--json", str(file)]) == 0
    written: dict[str, Any] = json.loads(file.read_text())
    return written


@pytest.mark.parametrize("target", ["subclass_aot.tensors:TwoTensor", f"{HERE}:torchs_two_tensor"])
def test_all_of_a_class_that_refuses_nothing_is_measured(target: str, tmp_path: Path) -> None:
    rows = _bench(target, tmp_path)["rows"]
    assert not [row["refused"] for row in rows if row["refused"]] and all(row["us"] > 0 for row in rows)
    names = {group: [row["name"] for row in rows if row["group"] == group] for group in ("class", "operator")}
    assert names["class"] == ["constructor", "__tensor_flatten__", "__tensor_unflatten__", "our unwrap", "our wrap"]
    assert names["operator"] == list(OPERATORS)
    for group in ("null graph", "eager backend"):
        assert [row["wrappers"] for row in rows if row["group"] == group] == list(COUNTS)
    for row in rows:
        if row["dense_us"]:
            assert row["ratio"] == row["us"] / row["dense_us"]


def test_what_is_refused_stands_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _bench(f"{HERE}:refusing", tmp_path)
    refused = {row["name"] for row in found["rows"] if row["group"] == "operator" and row["refused"]}
    assert {"mm", "sqrt", "addcdiv_"} <= refused and "detach" not in refused
    shown = capsys.readouterr().out
    assert "Refused:\n" in shown and "  mm: OperatorRuleError: " in shown
    assert f"{len(refused)} operators that a linear layer or AdamW needs are refused" in found["advice"][0]["what"]


def test_a_broken_target_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", f"{HERE}:fails", "--quick"]) == 2
    shown = capsys.readouterr()
    assert "gives no tensor of a wrapper class: RuntimeError: not today." in shown.err and not shown.out


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="an optional dependency")
    picture = tmp_path / "bench.png"
    assert main(["bench", "subclass_aot.tensors:TwoTensor", "--quick", "--plot", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"
