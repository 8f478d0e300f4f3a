"""Safetensors files: written, read, and read by others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
from torch import nn

from subclass_aot import Int8Weight, MetaTensor, TwoTensor, files
from subclass_aot.errors import MissingPackageError, StateDictError
from tests.files.classes import FOREIGN, assert_same, state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("name", state())
def test_each_entry_comes_back(name: str, path: Path) -> None:
    value = state()[name]
    files.save_file({name: value}, path)
    found = files.load_file(path, classes=FOREIGN)
    assert list(found) == [name]
    assert_same(found[name], value)


def test_all_together(path: Path) -> None:
    saved = state()
    files.save_file(saved, str(path), {"note": "mine"})
    found = files.load_file(str(path), classes=FOREIGN)
    assert set(found) == set(saved)
    for name, value in saved.items():
        assert_same(found[name], value)
    with safetensors.safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["note"] == "mine" and metadata["format"] == "pt"
    assert set(json.loads(metadata["subclass_aot"])) == {"version", "wrappers", "tied"}


def test_others_read_dense_tensors(path: Path) -> None:
    weight = Int8Weight.from_float(torch.randn(4, 3))
    files.save_file({"weight": weight, "bias": torch.ones(4)}, path)
    found = safetensors.torch.load_file(path)
    assert set(found) == {"weight.codes", "weight.scale", "bias"}
    assert found["weight.codes"].equal(weight.codes) and found["weight.scale"].equal(weight.scale)


def test_a_file_without_wrappers_is_as_others_write_it(path: Path) -> None:
    files.save_file({"weight": torch.ones(2)}, path)
    by_us = path.read_bytes()
    safetensors.torch.save_file({"weight": torch.ones(2)}, path, {"format": "pt"})
    assert path.read_bytes() == by_us
    assert files.load_file(path)["weight"].equal(torch.ones(2))


class Model(nn.Module):
    """Two layers with one weight."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.first, self.second = (nn.Linear(3, 3, bias=name == "first") for name in ("first", "second"))
        self.first.weight = self.second.weight = nn.Parameter(weight)
        self.register_buffer("steps", torch.zeros(2))
        self.register_buffer("window", self.steps[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


@pytest.mark.parametrize("make", [Int8Weight.from_float, torch.clone, lambda x: TwoTensor(x, x)])
def test_modules_whose_weights_are_tied(make: Any, path: Path) -> None:
    model, other = Model(make(torch.randn(3, 3))), Model(make(torch.randn(3, 3)))
    files.save_file(model, path)
    names = set(safetensors.torch.load_file(path))
    assert not {name for name in names if name.startswith("second.weight")}
    found = files.load_file(path)
    assert set(found) == set(model.state_dict())
    first, second = found["first.weight"], found["second.weight"]
    for one, two in zip(_leaves(first), _leaves(second), strict=True):
        assert one.data_ptr() == two.data_ptr()
    other.load_state_dict(found)
    assert other.first.weight is other.second.weight
    for name, value in model.state_dict().items():
        assert_same(other.state_dict()[name], value)
    with torch.device("meta"):
        empty = Model(make(torch.empty(3, 3)))
    empty.load_state_dict(found, assign=True)
    for name, value in model.state_dict().items():
        assert_same(empty.state_dict()[name], value)
    assert _leaves(empty.first.weight)[0].data_ptr() == _leaves(empty.second.weight)[0].data_ptr()


def _leaves(tensor: Any) -> list[torch.Tensor]:
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    return [leaf for name in tensor.__tensor_flatten__()[0] for leaf in _leaves(getattr(tensor, name))]


def test_tensors_that_overlap_are_stored_each(path: Path) -> None:
    whole = torch.arange(6.0)
    files.save_file({"whole": whole, "part": whole[2:], "turned": TwoTensor(whole.view(2, 3).t(), whole[:3])}, path)
    found = files.load_file(path)
    assert found["whole"].equal(whole) and found["part"].equal(whole[2:])
    assert found["turned"].a.equal(whole.view(2, 3).t()) and found["turned"].b.equal(whole[:3])


def test_a_file_of_others_into_a_quantized_model(path: Path) -> None:
    model = nn.Linear(3, 4)
    model.weight = nn.Parameter(Int8Weight.from_float(torch.randn(4, 3)), requires_grad=False)
    theirs = Int8Weight.from_float(torch.randn(4, 3))
    entries = {"weight.codes": theirs.codes, "weight.scale": theirs.scale, "bias": torch.ones(4)}
    safetensors.torch.save_file(entries, path)
    model.load_state_dict(files.load_file(path, like=model))
    assert_same(model.weight, theirs)
    assert model.bias.equal(torch.ones(4))


class Image(torch.Tensor):
    pass


NOT_IN_FILES: dict[str, tuple[Any, str]] = {
    "a number": (lambda: 3, r"weight is a int, and safetensors holds tensors only. Leave it out, or use torch.save"),
    "meta": (lambda: torch.ones(2, device="meta"), r"weight has no data, as a Tensor on the device meta"),
    "MetaTensor": (lambda: MetaTensor(torch.ones(2)), r"weight has no data, as a MetaTensor on the device cpu"),
    "inside": (lambda: TwoTensor(torch.ones(2, device="meta"), torch.ones(2, device="meta")), r"weight\.a has no data"),
    "inside, a MetaTensor": (lambda: TwoTensor(*[MetaTensor(torch.ones(2))] * 2), r"weight\.a has no data, as a MetaT"),
    "sparse": (
        lambda: torch.eye(2).to_sparse(),
        r"weight has the layout torch.sparse_coo.*Save to_dense",
    ),
    "csr": (lambda: torch.eye(2).to_sparse_csr(), r"weight has the layout torch.sparse_csr"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        r"weight is a nested tensor\. .* values\(\) and offsets\(\) of a jagged one",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
        r"weight is a nested tensor\. Save its",
    ),
    "mkldnn": (lambda: torch.ones(2).to_mkldnn(), r"weight has the layout torch._mkldnn, .* Save to_dense\(\)"),
    "complex128": (
        lambda: torch.ones(2, dtype=torch.complex128),
        r"weight: safetensors has no torch.complex128. Save it in another dtype",
    ),
    "a class of others": (lambda: torch.ones(2).as_subclass(Image), r"weight is a Image, and its class would be lost"),
    "uninitialized": (lambda: nn.UninitializedParameter(), r"weight is not initialized. Run the module once"),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("name", NOT_IN_FILES)
def test_what_a_file_cannot_hold(name: str, path: Path) -> None:
    make, said = NOT_IN_FILES[name]
    with pytest.raises(StateDictError, match=said):
        files.save_file({"bias": torch.ones(2), "weight": make()}, path)
    assert not path.exists()


def test_the_name_of_the_metadata_is_taken(path: Path) -> None:
    with pytest.raises(StateDictError, match="metadata: 'subclass_aot' is where"):
        files.save_file({"weight": torch.ones(2)}, path, {"subclass_aot": ""})


@pytest.mark.parametrize("module", ["safetensors", "safetensors.torch"])
def test_without_safetensors(module: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for way in (lambda: files.save_file({}, path), lambda: files.load_file(path)):
        with pytest.raises(MissingPackageError, match="pip install safetensors"):
            way()


def test_it_is_written_over_while_its_tensors_are_held(path: Path) -> None:
    files.save_file({"weight": TwoTensor(torch.ones(1000), torch.zeros(1000))}, path)
    found = files.load_file(path)
    files.save_file({"weight": found["weight"], "more": torch.zeros(10**5)}, path)
    assert found["weight"].a.equal(torch.ones(1000))
    assert files.load_file(path)["weight"].a.equal(torch.ones(1000))


def test_the_library_needs_no_safetensors() -> None:
    program = (
        "import sys; sys.modules['safetensors'] = None\n"
        "import torch\n"
        "from subclass_aot import TwoTensor, files\n"
        "files.wrap_state_dict(*files.unwrap_state_dict({'w': TwoTensor(torch.ones(2), torch.ones(2))}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
