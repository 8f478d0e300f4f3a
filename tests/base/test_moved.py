"""Modules by the names that they had before they were sorted into layers."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
import zipfile
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base.moved import name_now
from tests import house

OF_VERSION_0_1 = (
    "_stack", "_torch", "_version_check", "aliasing", "aotautograd", "backends", "benchmark", "blocks", "bytecode",
    "call", "codegen", "compile", "declaration", "descriptors", "devices", "dynamo", "errors", "exact", "explain",
    "export", "facts", "files", "flatten", "graph", "guards", "hooks", "inspection", "joint", "logs",
    "lru_caches", "meta", "missing", "named", "objects", "operators", "ops", "options", "outcome", "outputs", "passes",
    "plain_values", "products", "profiling", "progress", "put_back", "refused", "restore", "runtime", "saved",
    "shown_type", "signature", "sizes", "specializations", "stages", "symbols", "tables", "tensors", "testing", "trace",
    "tricks", "views", "weak", "wrapper",
)  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("name", OF_VERSION_0_1)
def test_a_module_is_the_same_by_both_names(name: str) -> None:
    now = name_now(f"subclass_aot.{name}") or f"subclass_aot.{name}"
    assert importlib.import_module(f"subclass_aot.{name}") is importlib.import_module(now)
    assert now.removeprefix("subclass_aot.") in house.modules()


def test_a_file_in_a_room_is_imported_once() -> None:
    module = importlib.import_module("subclass_aot.wrapper.declare.outer")
    assert module is sys.modules["subclass_aot.kit.wrapper.declare.outer"]
    assert module.__name__ == "subclass_aot.kit.wrapper.declare.outer" == module.__spec__.name  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["subclass_aot.nowhere", "subclass_aot.wrapper.nowhere", "subclass_aot.compiled"])
def test_a_module_that_never_was(name: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere|compiled"):
        importlib.import_module(name)


def test_names_that_a_room_had() -> None:
    from subclass_aot.meta import meta, missing_meta, to_meta

    assert (to_meta, missing_meta) == (sa.to_meta, sa.missing_meta) and sa.meta.to_meta is to_meta
    with meta():
        assert type(torch.ones(2)) is sa.MetaTensor
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sa.meta.nothing  # noqa: B018  # type: ignore[attr-defined]


def test_names_of_others_are_left_alone() -> None:
    assert name_now("torch.export") is None and name_now("subclass_aot") is None
    assert name_now("subclass_aot.tensors.int8_weight") is None


def _as_earlier(file: io.BytesIO) -> io.BytesIO:
    """A file of `torch.save`, with the names that the modules had in version 0.1."""
    earlier = io.BytesIO()
    with zipfile.ZipFile(file) as found, zipfile.ZipFile(earlier, "w") as written:
        for name in found.namelist():
            content = found.read(name)
            assert name.endswith("data.pkl") == (b"subclass_aot.kit." in content)
            written.writestr(name, content.replace(b"csubclass_aot.kit.wrapper", b"csubclass_aot.wrapper"))
    earlier.seek(0)
    return earlier


@pytest.mark.parametrize("weights_only", [True, False])
def test_weights_of_an_earlier_version_are_loaded(weights_only: bool) -> None:
    weight, file = sa.Int8Weight.from_float(torch.randn(4, 4)), io.BytesIO()
    torch.save({"weight": weight}, file)
    found = torch.load(_as_earlier(file), weights_only=weights_only)["weight"]
    assert type(found) is sa.Int8Weight and torch.equal(found.to_plain(), weight.to_plain())


def test_a_pickle_of_an_earlier_version_is_loaded() -> None:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (x @ w).sum()

    joint: Any = sa.trace_joint(loss, torch.ones(3, 2, requires_grad=True), torch.ones(4, 3))
    text = pickle.dumps(joint, 0)
    earlier = text.replace(b"subclass_aot.doors.", b"subclass_aot.").replace(b"subclass_aot.engine.", b"subclass_aot.")
    assert earlier != text
    assert repr(pickle.loads(earlier)) == repr(joint)
