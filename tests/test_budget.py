"""What first calls and hits take, counted: nothing of it grows unnoticed.

Each number has its reason. Who needs more says why here, and runs `python -m tests.budget`; who needs less does, too.
"""

from __future__ import annotations

import platform

import pytest
import torch

from tests import budget

REASONS = {
    "x * 2, inference": "each stage once: facts, trace, functional graph, guard, code, each with a check for a subject",
    "wrapper * x, training": "the same; a wrapper is taken apart, a joint graph split, an `autograd.Function` made",
    "24 layers, forward and backward": "as one layer: no function is entered for the number of layers",
    "a joint trace of a ViT of 2 layers, for each node": "an operator is inferred, recorded and copied without writes",
    "a hit": "the call, the modes of torch (two, none with the accelerator), the generated call and the graph",
    "a training hit": "one more, the forward of the `autograd.Function`",
}


@pytest.mark.skipif(
    (platform.python_version_tuple()[:2], torch.__version__.split("+")[0]) != (("3", "11"), "2.13.0"),
    reason="other Pythons and torches have other frames",
)
def test_nothing_grows_unnoticed() -> None:
    allowed, now = budget.table(), budget.measured()
    assert {name for kind in ("functions", "calls", "frames") for name in allowed[kind]} == REASONS.keys()
    grown = {
        f"{kind}: {name}": f"{number}, {allowed[kind].get(name, 0)} are allowed"
        for kind, numbers in now.items()
        for name, number in numbers.items()
        if kind != "files" and number > allowed[kind].get(name, 0)
    }
    files = {
        file: f"{number} functions, {allowed['files'].get(file, 0)} before"
        for file, number in now["files"].items()
        if number > allowed["files"].get(file, 0)
    }
    assert not grown, (grown, "where x * 2 enters more", files)
