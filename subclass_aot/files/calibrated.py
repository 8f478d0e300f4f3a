"""Weights of checkpoints that were quantized with data, by GPTQ or AWQ: their codes and scales as they are."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from subclass_aot.base._torch import quantized
from subclass_aot.base.refused import Refused
from subclass_aot.errors import StateDictError
from subclass_aot.files.folder import Folder, read_json
from subclass_aot.files.packed import PARTS, Layout, Packed
from subclass_aot.files.parts import Part, joined
from subclass_aot.tensors import Int4Tiles, Int4Weight
from subclass_aot.tensors.reordered import Reordered


def load_calibrated(
    model: nn.Module, folder: str | PathLike[str], *, strict: bool = True, tiles: bool = False
) -> nn.Module:
    """Fills a model with the weights of a checkpoint of GPTQ or AWQ, without rounding them again.

    A weight of four bits becomes an `Int4Weight`, one of eight with a scale for each row an `Int8Weight`; frozen ones.
    Where groups of columns do not lie side by side (`desc_act`), it is in the order of groups, and products read their
    other operand so. All else is loaded as it is. Scales have the dtype of the parameter that is replaced: those of
    float16 are exact in a model in float16 or float32, and rounded in one in bfloat16.

    Args:
        model: A model as it was before quantization, of the same names. Parameters may be on the meta device; those
            get to the CPU. Buffers that no file has must be there, but in models of `transformers`, which are also
            saved by their own `save_pretrained` from then on.
        folder: It has a `config.json` with a `quantization_config`, and safetensors files.
        strict: Refuse names that only the model or only the files have.
        tiles: Make `Int4Tiles` of the weights that torch's kernel for CPUs could take, as `quantize_` does. What a
            group has in the middle is rounded then, in bfloat16.

    Returns:
        The model.

    Raises:
        StateDictError: The files are not of such a checkpoint, or not of this model; the model is as before.
        MissingPackageError: There is no safetensors.
    """
    path = Path(folder)
    config = read_json(path / "config.json").get("quantization_config")
    if not isinstance(config, Mapping):
        raise StateDictError(
            f"{path / 'config.json'} has no quantization_config. Load a dense checkpoint with load_state_dict, "
            "or from_pretrained of transformers"
        )
    layout = Layout.of(config, str(path / "config.json"))
    with Folder(path) as files:
        places = _Places(model)
        found = _Found(places, files)
        packed = {name.rpartition(".")[0] for name in files if name.endswith(".qweight")}
        if not packed:
            raise StateDictError(
                f"{path} has no tensor of a name that ends in .qweight, so no weights of {layout.method}"
            )
        for name in sorted(packed):
            found.add_packed(name, layout, tiles)
        for name in files:
            above, _, part = name.rpartition(".")
            if above not in packed or part not in PARTS:
                found.add_dense(name)
        found.join_experts()
        if strict:
            found.refuse_others()
    found.refuse_without_data()
    found.put()
    if places.of_transformers is not None:
        places.of_transformers.complete(model)
    return model


class _Places:
    """Where tensors go in a model.

    Args:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        parameters = dict(model.named_parameters(remove_duplicate=False))
        self.all: dict[str, torch.Tensor] = parameters | dict(model.named_buffers(remove_duplicate=False))
        self.saved = set(model.state_dict())
        self.of_transformers = _of_transformers(model)
        self.part_of: Callable[[str], Part] = (
            Part if self.of_transformers is None else self.of_transformers.parts_of(model)
        )

    @property
    def kind(self) -> str:
        """The class of the model."""
        return type(self.model).__name__

    def layer_of(self, name: str) -> nn.Module:
        """Returns the module that has a parameter."""
        return self.model.get_submodule(name.rpartition(".")[0])

    def put(self, name: str, value: torch.Tensor) -> None:
        """Puts a tensor into the place of a name, and of all that are tied to it, if that has no data, and its values
        else.
        """
        place = self.all[name]
        if not place.is_meta:
            with torch.no_grad():
                place.copy_(value)
            return
        new = value.to(place.dtype)
        new = nn.Parameter(new, place.requires_grad) if isinstance(place, nn.Parameter) else new
        for other, tensor in self.all.items():
            if tensor is place:
                self.replace(other, new)

    def replace(self, name: str, value: torch.Tensor) -> None:
        """Replaces what is in a place."""
        setattr(self.layer_of(name), name.rpartition(".")[2], value)


class _Found:
    """What was found for the places of a model, before any is changed.

    Args:
        places: Those of the model.
        files: The files.
    """

    def __init__(self, places: _Places, files: Folder) -> None:
        self.places, self.files = places, files
        self.weights: dict[str, torch.Tensor] = {}
        self.dense: dict[str, torch.Tensor] = {}
        self.experts: dict[str, dict[tuple[int, int], torch.Tensor]] = {}
        self.unknown: list[str] = []

    def add_packed(self, name: str, layout: Layout, tiles: bool) -> None:
        """Reads the weight of a layer."""
        part = self._placed(f"{name}.weight", f"{name}.qweight")
        old = self.places.all.get(part.name)
        if old is None:
            self.unknown.append(f"{name}.qweight")
            return
        if part.expert is None and not isinstance(layer := self.places.layer_of(part.name), nn.Linear):
            raise self._wrong(f"{name}.qweight", f"is of a {type(layer).__name__} in the model, and no linear layer")
        new = Packed(name, part.size_in(old), layout, self.files.read, self.files.file_of).weight(old.dtype)
        new = new.to("cpu" if old.is_meta else old.device)
        if part.expert is None:
            self.weights[part.name] = _in_tiles(new) if tiles else new
        else:
            self.experts.setdefault(part.name, {})[part.source, part.expert] = new

    def add_dense(self, name: str) -> None:
        """Reads a tensor that is as it is."""
        value, part = self.files.read(name), self._placed(name, name)
        assert value is not None
        place = self.places.all.get(part.name)
        if place is None or part.name not in self.places.saved:
            self._pass_over(name, value)
            return
        if part.size_in(place) != tuple(value.shape):
            raise self._wrong(name, f"is {tuple(value.shape)}, and the model has {part.size_in(place)} there")
        if part.expert is None:
            self.dense[part.name] = value
        else:
            self.experts.setdefault(part.name, {})[part.source, part.expert] = value

    def join_experts(self) -> None:
        """Makes one weight of those of experts."""
        for name, parts in self.experts.items():
            whole, size = joined(parts, f"{self.files.path}: {name}"), tuple(self.places.all[name].shape)
            if whole.shape != size:
                raise StateDictError(
                    f"{self.files.path}: {name} is {tuple(whole.shape)} of all experts, and the model has {size} there"
                )
            (self.dense if type(whole) is torch.Tensor else self.weights)[name] = whole

    def refuse_others(self) -> None:
        """Raises an error where names do not fit."""
        if self.unknown:
            raise StateDictError(
                f"{self.files.file_of(self.unknown[0])}: {_listed(self.unknown)} has no place in this "
                f"{self.places.kind}, which has {_listed(list(self.places.all))}. strict=False leaves it out"
            )
        if missing := [name for name in self._not_given() if name in self.places.saved]:
            raise StateDictError(
                f"{self.files.path} has no {_listed(missing)} of this {self.places.kind}. strict=False leaves it as it "
                "is"
            )

    def refuse_without_data(self) -> None:
        """Raises an error where something of the model would have no data, and the model cannot compute it."""
        computes = self.places.of_transformers is not None
        left = [name for name in self._not_given() if self.places.all[name].is_meta]
        if left := [name for name in left if name in self.places.saved or not computes]:
            raise StateDictError(
                f"{self.files.path} has no {_listed(left)}, and this {self.places.kind} has it on the meta device. "
                "Make the model with that on another device"
            )

    def put(self) -> None:
        """Changes the model."""
        for name, value in self.dense.items():
            self.places.put(name, value)
        for name, weight in self.weights.items():  # of two that were tied, one may be dense
            self.places.replace(name, nn.Parameter(weight, requires_grad=False))

    def _pass_over(self, name: str, value: torch.Tensor) -> None:
        """Notes a name that the model does not have, unless nothing is lost.

        Some writers give each layer a bias, of zeros where the model has none, and some write what models compute.
        """
        key = name.rpartition(".")[2]
        computed = (place.rpartition(".")[2] for place in self.places.all.keys() - self.places.saved)
        if key not in computed and not (key == "bias" and not value.any()):
            self.unknown.append(name)

    def _not_given(self) -> list[str]:
        """Returns the names of the model for which no file has anything, nor for what they are tied to."""
        every = self.places.all
        given = {id(every[name]) for name in self.dense}
        return [name for name, place in every.items() if name not in self.weights and id(place) not in given]

    def _placed(self, name: str, there: str) -> Part:
        try:
            return self.places.part_of(name)
        except Refused as refused:
            raise self._wrong(there, refused.what) from None

    def _wrong(self, name: str, what: str) -> StateDictError:
        return StateDictError(f"{self.files.file_of(name)}: {name} {what}")


def _in_tiles(weight: torch.Tensor) -> torch.Tensor:
    if isinstance(weight, Reordered):
        return Reordered(_in_tiles(weight.base), weight.order)
    is_taken = isinstance(weight, Int4Weight) and quantized.tile_for(weight, weight.shape[1] // weight.scale.shape[1])
    return Int4Tiles.of(weight) if is_taken else weight  # type: ignore[arg-type]


def _of_transformers(model: nn.Module) -> Any:
    """Returns what is done for models of `transformers` alone; None for others."""
    package = sys.modules.get("transformers")  # what was not imported has made no model, and is slow to import
    if package is None or not isinstance(model, package.PreTrainedModel):
        return None
    return importlib.import_module("subclass_aot.files.transformers")


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
