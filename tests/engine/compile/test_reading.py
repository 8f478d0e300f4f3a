"""No program ends the process: what has no memory is not read. The programs are in `reading_programs.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy

AS_IN_EAGER = {
    "deepcopy", "deepcopy of a leaf", "custom operator", "custom operator, inductor", "error in backward",
    "error in a hook", "error in a hook that packs", "error in a hook that unpacks", "compiled",
    "compiled, used before", "compiled, of a wrapper", "compiled module", "compiled inside",
    "compiled function, compiled", "tolist", "numpy", "numpy of a gradient's tensor", "asarray", "a function of numpy",
    "memoryview", "numpy in forward", "numpy in a hook on saved tensors", "a number in a text", "in",
    "block mask", "block mask, compiled", "flex attention", "operators of torchscript",
    "storage", "set_", "torch.tensor of numbers",
}  # fmt: skip
OTHER_ERRORS = {
    "custom operator without a rule": "ShapeRuleError",
    "a thread": "UnknownTensorError",
}


def test_programs_end_as_in_eager_or_with_an_error_that_names_what_is_read() -> None:
    script = Path(__file__).with_name("reading_programs.py")
    path = os.pathsep.join([str(script.parents[3]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    wrong = {outcome["name"]: outcome for outcome in found if not is_right(outcome)}
    assert len(found) > 40 and {outcome["name"] for outcome in found} >= {*AS_IN_EAGER, *OTHER_ERRORS}
    assert not wrong


def is_right(outcome: dict[str, Any]) -> bool:
    error, eager_error = outcome.get("compiled error"), outcome.get("eager error")
    if "signal" in outcome:
        return False
    if outcome["name"] not in AS_IN_EAGER:
        return (error or "").startswith(OTHER_ERRORS.get(outcome["name"], "DataDependentError"))
    got, expected = outcome.get("compiled"), outcome.get("eager")
    same = error is not None or got == expected or not isinstance(got, str) and numpy.allclose(got, expected, atol=1e-6)
    return error == eager_error and same
