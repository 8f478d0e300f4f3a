"""Writes `torch_2_4.json`: what torch 2.4.1 answers for random lists. Usage, with that torch:

python -m tests.doors.aotautograd.record_torch_2_4
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch._functorch._aot_autograd import schemas, subclass_utils

from tests.doors.aotautograd.cases import answers, cases

SEED, COUNT = 24, 500
KINDS = ("SubclassCreationMeta", "ViewAndMutationMeta", "InputAliasInfo")


class Torch:
    """The functions of torch 2.4 itself."""

    ONLY_FAKE = True

    def __getattr__(self, name: str) -> Any:
        return getattr(subclass_utils, name)

    @staticmethod
    def unwrap_tensor_subclasses(args: Any, *, is_joint_structure: bool, subclass_metas: Any) -> Any:
        return subclass_utils.unwrap_tensor_subclasses(args, is_joint_structure=is_joint_structure)

    @staticmethod
    def create_metadata_for_subclass(meta: Any) -> Any:
        """Returns what torch passes to the constructor, which refuses it: lists are None there that it reads."""
        subclass_utils.ViewAndMutationMeta = SimpleNamespace
        try:
            return subclass_utils.create_metadata_for_subclass(meta)
        finally:
            subclass_utils.ViewAndMutationMeta = schemas.ViewAndMutationMeta

    @staticmethod
    def function_meta(**fields: Any) -> Any:
        return schemas.ViewAndMutationMeta(**fields, keep_input_mutations=False)

    @staticmethod
    def input_info(how: str) -> Any:
        return schemas.InputAliasInfo(
            is_leaf=True, mutates_data=how != ".", mutates_metadata=False, mutations_hidden_from_autograd=False,
            mutations_under_no_grad_or_inference_mode=False, mutation_inductor_storage_resize=False,
            mutates_storage_metadata=False, requires_grad=False, keep_input_mutations=how == "i",
        )  # fmt: skip

    @staticmethod
    def output_info() -> Any:
        return schemas.OutputAliasInfo(schemas.OutputType.non_alias, torch.Tensor, None, set(), True)


def main() -> None:
    """Draws cases, asks torch, and writes one line for each."""
    assert torch.__version__.startswith("2.4.1")
    fields = {kind: [field.name for field in dataclasses.fields(getattr(schemas, kind))] for kind in KINDS}
    rows = []
    names: list[str] = []
    for case in cases(SEED, COUNT):
        found = answers(case, Torch())
        names += [name for name in found if name not in names]
        rows.append([list(dataclasses.astuple(case)), [found.get(name) for name in names]])
    head = json.dumps({"torch": torch.__version__.split("+")[0], "seed": SEED, "fields": fields, "answers": names})
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (Path(__file__).parent / "torch_2_4.json").write_text(f'{head[:-1]}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
