"""Names of classes, functions and operators."""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import pytest
import torch

from subclass_aot.base.refused import Refused
from subclass_aot.files.compiled.names import find, name_of, name_of_operator, operator_named


def test_names_lead_back() -> None:
    assert find(name_of(collections.OrderedDict)) is collections.OrderedDict
    assert operator_named(name_of_operator(torch.ops.aten.mul.Tensor)) is torch.ops.aten.mul.Tensor


def test_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_imported_yet.py").write_text("class Weight: ...")
    monkeypatch.syspath_prepend(tmp_path)
    assert find("not_imported_yet:Weight").__name__ == "Weight"
    del sys.modules["not_imported_yet"]


def test_a_class_that_no_other_process_finds_is_refused() -> None:
    class Local: ...

    with pytest.raises(Refused, match="inside a function"):
        name_of(Local)
