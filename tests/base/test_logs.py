"""`TORCH_LOGS` and `TORCH_TRACE` show what this library compiles, in a process of their own."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile

PROGRAM = """
import torch, subclass_aot as sa

def double(s):
    return (s * 2).sin()

s = sa.TwoTensor(torch.ones(3), torch.ones(3)).requires_grad_()
torch.compile(double, backend="subclass_aot")(s).sum().backward()
sa.aot_compile(lambda s: s.cos())(s.detach())
"""


def said(**environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TORCH_")}
    given = {**inherited, "PYTHONPATH": str(Path.cwd()), **environment}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=given, capture_output=True, text=True, check=True)
    return ran.stderr


@pytest.mark.parametrize(
    "names, shown, not_shown",
    [
        ("subclass_aot", ["joint graph", "forward graph", "backward graph", "inference graph of"], ["def call("]),
        ("+subclass_aot", ["joint graph of what torch.compile captured", "def call(args", "torch.ops.aten.sin"], []),
        ("aot_joint_graph", ["joint graph of what"], ["forward graph of", "def call("]),
        ("aot_graphs", ["forward graph of", "backward graph of"], ["joint graph of", "def call("]),
    ],
)  # fmt: skip
def test_torch_logs(names: str, shown: list[str], not_shown: list[str]) -> None:
    text = said(TORCH_LOGS=names)
    assert [x for x in shown if x not in text] == []
    assert [x for x in not_shown if x in text] == []


def test_torch_trace(tmp_path: Path) -> None:
    """With the names that `tlparse` knows."""
    said(TORCH_TRACE=str(tmp_path))
    (file,) = tmp_path.iterdir()
    lines = [line for line in file.read_text().splitlines() if line.startswith("V")]
    records = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
    names = [name for record in records for name in record if name.startswith("aot_")]
    assert names == [
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_joint_graph",
        "aot_inference_graph",
    ]
    numbers = [record.get("frame_id") for record in records if any(name in record for name in names)]
    assert numbers == [0, 0, 0, None, None]  # backward, too, which is compiled later
    codes = [record for record in records if record.get("artifact", {}).get("name") == "subclass_aot_code"]
    assert len(codes) == 2


def test_the_logger_is_pythons(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "subclass_aot"):
        aot_compile(lambda s: s.sin())(TwoTensor(torch.ones(2), torch.ones(2)))
    texts = [record.getMessage() for record in caplog.records if record.name == "subclass_aot.base.logs"]
    assert [text.split()[0] for text in texts] == ["joint", "inference", "generated"]


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_a_program_that_logs_does_not_get_graphs(level: int, caplog: pytest.LogCaptureFixture) -> None:
    """`logging.basicConfig(level=logging.INFO)` is for messages of a line."""
    with caplog.at_level(level):
        aot_compile(lambda s: s.sin())(TwoTensor(torch.ones(2), torch.ones(2)))
    assert [record for record in caplog.records if record.name.startswith("subclass_aot")] == []


def test_who_takes_all_records_gets_no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pytest, which adds its handler to each logger."""
    printed: list[object] = []
    monkeypatch.setattr("subclass_aot.base.logs._text", printed.append)
    handler = logging.NullHandler()
    loggers = logging.getLogger(), logging.getLogger("torch.__trace")
    for logger in loggers:
        logger.addHandler(handler)
    try:
        aot_compile(lambda x: x * 2)(torch.ones(2))
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    assert not printed
