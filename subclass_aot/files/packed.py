"""How checkpoints of GPTQ and AWQ lay out a weight, and the weight of a ready-made class that has the same codes.

Both hold the transpose: groups of columns of a weight `[M, N]` are rows there. Integers of 32 bits hold several codes,
the first in the lowest bits. GPTQ packs codes along N and zero points along M, and AWQ both along M, in an order of
its own. The files of GPTQ's first format have each zero point less one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.errors import StateDictError
from subclass_aot.tensors import Int4Weight, Int8Weight
from subclass_aot.tensors.reordered import Reordered

PARTS = ("qweight", "qzeros", "scales", "g_idx")
"""The names of the tensors that stand for a weight."""

_IN_WORD = (0, 4, 1, 5, 2, 6, 3, 7)
"""Where in a word of AWQ the code of each of eight columns is."""

_INSTEAD = "Instead: sa.quantize_ of the model with dense weights"


@dataclass(frozen=True)
class Layout:
    """What a configuration says of the weights.

    Attributes:
        method: "gptq" or "awq".
        bits: Of a code.
        group: How many columns share a scale; -1 for all.
        offset: What is added to zero points as they are in the file.
    """

    method: str
    bits: int
    group: int
    offset: int

    @classmethod
    def of(cls, config: Mapping[str, Any], place: str) -> Layout:
        """Returns that of a `quantization_config`.

        Args:
            config: The configuration.
            place: The file that has it.

        Raises:
            StateDictError: It is of another method or format, or of other bits.
        """
        method = str(config.get("quant_method", "")).lower()
        bits, group = config.get("bits", config.get("w_bit")), config.get("group_size", config.get("q_group_size"))
        if method not in _FORMATS:
            raise StateDictError(
                f'{place}: quant_method is "{method}", and weights of "gptq" and "awq" can be read. {_INSTEAD}'
            )
        said = next((config[key] for key in ("checkpoint_format", "version", "format") if config.get(key)), "")
        form = "marlin" if config.get("is_marlin_format") else str(said or [*_FORMATS[method]][0]).lower()
        if form not in _FORMATS[method]:
            known = " and ".join(f'"{each}"' for each in _FORMATS[method])
            raise StateDictError(
                f'{place}: weights of {method} in the format "{form}" have another layout than {known}'
            )
        if bits not in _BITS[method] or not isinstance(group, int) or not (group == -1 or group > 0):
            known = " or ".join(map(str, _BITS[method]))
            raise StateDictError(
                f"{place}: {method} with bits {bits} and group_size {group}; there are classes for {known} bits, in "
                f"groups of a positive size, or of -1 for whole rows. {_INSTEAD}"
            )
        return cls(method, bits, group, _FORMATS[method][form])


_FORMATS = {"gptq": {"gptq": 1, "gptq_v2": 0}, "awq": {"gemm": 0}}
_BITS = {"gptq": (4, 8), "awq": (4,)}


class Packed:
    """The tensors of one weight.

    Args:
        name: That of the layer.
        size: M and N of the weight.
        layout: How it lies.
        read: Returns the tensor of a name; None where there is none.
        file_of: Returns the file that has a name, or should have it.
    """

    def __init__(
        self,
        name: str,
        size: tuple[int, ...],
        layout: Layout,
        read: Callable[[str], torch.Tensor | None],
        file_of: Callable[[str], str],
    ) -> None:
        self.name, self.layout = name, layout
        self.rows, self.columns = size
        self._read, self._file_of = read, file_of
        self.group = self.columns if layout.group == -1 else min(layout.group, self.columns)
        self.groups = -(-self.columns // self.group)

    def weight(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the weight.

        Args:
            dtype: That of scales and zero points, and so of the weight.

        Raises:
            StateDictError: The tensors are not those of such a weight, or no class holds it.
        """
        per_word = 32 // self.layout.bits
        if self.columns % self.group:
            raise self._wrong("qweight", f"has {self.columns} columns, which groups of {self.group} do not divide")
        if self.layout.bits == 8 and self.groups > 1:
            raise self._wrong(
                "qweight",
                f"has eight bits in groups of {self.group}, and Int8Weight a scale for each row. Instead: quantize in "
                "four bits, or with group_size -1",
            )
        if self.layout.method == "gptq":
            codes = self._words("qweight", self.columns // per_word, self.rows)
            codes = self._codes(codes.t()).t()
        else:
            codes = self._in_order(self._codes(self._words("qweight", self.columns, self.rows // per_word)))
        zeros = self._codes(self._words("qzeros", self.groups, self.rows // per_word))
        zeros = self._in_order(zeros) if self.layout.method == "awq" else zeros
        zeros = zeros + self.layout.offset & 2**self.layout.bits - 1  # one less than 0 is kept as the largest
        scales = self._tensor("scales", self.groups, self.rows)
        if not scales.is_floating_point():
            raise self._wrong("scales", f"is {scales.dtype}")
        order, groups = self._order()
        scales, zeros = scales[groups].t().to(dtype).contiguous(), zeros[groups].t().to(dtype).contiguous()
        if order is None:
            return self._made(codes.t(), scales, zeros)
        return Reordered(self._made(codes[order].t(), scales, zeros), order)

    def _made(self, codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
        if self.layout.bits == 4:
            return Int4Weight.of_codes(codes, scales, zeros)
        middle = zeros - 128
        return Int8Weight((codes - 128).to(torch.int8).contiguous(), scales, middle if middle.any() else None)

    def _codes(self, words: torch.Tensor) -> torch.Tensor:
        """Returns the codes `[..., words * n]` of words `[..., words]`."""
        shifts = torch.arange(0, 32, self.layout.bits, dtype=torch.int32)
        codes: torch.Tensor = words[..., None] >> shifts & 2**self.layout.bits - 1
        return codes.flatten(-2)

    def _in_order(self, codes: torch.Tensor) -> torch.Tensor:
        words: torch.Tensor = codes.unflatten(-1, (-1, 8))
        return words[..., _IN_WORD].flatten(-2)

    def _order(self) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Returns the columns in the order of their groups, None where they are, and the groups in that order."""
        index = self._read(f"{self.name}.g_idx")
        if index is None or not index.numel() or self.layout.method == "awq":
            return None, torch.arange(self.groups)
        index = self._tensor("g_idx", self.columns).long()
        if not index.sort().values.equal(torch.arange(self.columns) // self.group):
            raise self._wrong("g_idx", f"is not of {self.groups} groups of {self.group} columns each")
        found = index.view(self.groups, self.group)
        if (found == found[:, :1]).all():
            return None, found[:, 0]
        return index.argsort(stable=True), torch.arange(self.groups)

    def _words(self, part: str, *size: int) -> torch.Tensor:
        found = self._tensor(part, *size)
        if found.dtype is not torch.int32:
            raise self._wrong(part, f"is {found.dtype}, and words of torch.int32 are expected")
        return found

    def _tensor(self, part: str, *size: int) -> torch.Tensor:
        found = self._read(f"{self.name}.{part}")
        if found is None:
            raise self._wrong(part, "is missing")
        if found.shape != size:
            raise self._wrong(
                part,
                f"is {tuple(found.shape)}, and {size} is expected of a weight {(self.rows, self.columns)} in "
                f"{self.layout.bits} bits with groups of {self.group}",
            )
        return found

    def _wrong(self, part: str, what: str) -> StateDictError:
        name = f"{self.name}.{part}"
        return StateDictError(f"{self._file_of(name)}: {name} {what}")
