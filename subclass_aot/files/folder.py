"""The tensors of a folder as `transformers` writes it: one safetensors file, or shards with an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.errors import StateDictError
from subclass_aot.files.file import safetensors_package

_INDEX = "model.safetensors.index.json"


class Folder:
    """Tensors by name, read when they are asked for. A context manager, which closes the files.

    Args:
        path: The folder.

    Raises:
        StateDictError: There are no such files, or several and none that says which has what.
        MissingPackageError: There is no safetensors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()
        self._package = safetensors_package()
        self._files: dict[str, Any] = {}
        self._places: dict[str, str] = {}
        index = path / _INDEX
        if index.is_file():
            self._places = dict(read_json(index).get("weight_map", {}))
            return
        found = sorted(path.glob("*.safetensors"))
        whole = [each for each in found if each.name == "model.safetensors"] or found
        if len(whole) != 1:
            there = ", ".join(each.name for each in found) or "no safetensors file"
            raise StateDictError(f"{path} has {there}; one is expected, or {_INDEX}, which says what is in which")
        self._places = dict.fromkeys(self._file(whole[0].name).keys(), whole[0].name)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def file_of(self, name: str) -> str:
        """Returns the path of the file that has a tensor, or of the folder."""
        return str(self.path / self._places.get(name, ""))

    def read(self, name: str) -> torch.Tensor | None:
        """Returns the tensor of a name; None where there is none."""
        if name not in self._places:
            return None
        file = self._file(self._places[name])
        try:
            return file.get_tensor(name)  # type: ignore[no-any-return]
        except (self._package.SafetensorError, KeyError, AttributeError, TypeError, ValueError) as error:
            pass_on_interruption(error)
            raise StateDictError(f"{self.file_of(name)}: {name} cannot be read: {error}") from error

    def _file(self, name: str) -> Any:
        if name not in self._files:
            path = self.path / name
            try:
                self._files[name] = self._open.enter_context(self._package.safe_open(path, framework="pt"))
            except (self._package.SafetensorError, OSError) as error:
                raise StateDictError(f"{path} is no safetensors file that can be read: {error}") from error
        return self._files[name]


def read_json(path: Path) -> dict[str, Any]:
    """Returns what a file of JSON says.

    Raises:
        StateDictError: It is not there, or no object of JSON.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StateDictError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise StateDictError(f"{path} has a {type(found).__name__}, and an object is expected")
    return found
