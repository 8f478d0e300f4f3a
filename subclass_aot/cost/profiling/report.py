"""`Report`: what a run computes, keeps and holds, and what can be made of that: a table, a picture, a check."""

from __future__ import annotations

import os
from typing import Any

import torch

from subclass_aot.cost.devices import bytes_of
from subclass_aot.cost.profiling.check import Check, check
from subclass_aot.cost.profiling.export import as_json, write_snapshot
from subclass_aot.cost.profiling.figures import Figures
from subclass_aot.cost.profiling.figures import Moment as Moment  # files of version 0.2.0 have them from here
from subclass_aot.cost.profiling.figures import WrapperBytes as WrapperBytes
from subclass_aot.cost.profiling.formula import LargestSize, formula_of
from subclass_aot.cost.profiling.picture import plot
from subclass_aot.cost.profiling.table import difference, table
from subclass_aot.errors import ProfileError


class Report(Figures):
    """What a run computes, keeps and holds.

    All memory is in bytes, and of one device. See `Figures` for what it has.
    """

    def formula(self, letter: str = "B", dim: int | None = None) -> Any:
        """Returns the peak and the products as functions of a size: see `formula_of`.

        Args:
            letter: "B" for the batch; any other, as "S", for the length of sequences.
            dim: The dim of the data that it is; the first for "B", the second for others if left out.
        """
        key = letter, dim
        if key not in self._formulas:
            self._formulas[key] = formula_of(self, letter, dim)
        return self._formulas[key]

    def largest_batch(self, memory: str | int | float | None = None) -> LargestSize:
        """Returns the largest batch whose peak is not over the memory.

        Args:
            memory: The memory, as "80GiB"; that of the report if left out.

        Returns:
            The batch, which runs have tried; where they need values that nobody knows, what the formula says, and why
            (`untried`).

        Raises:
            ProfileError: Nobody said how much there is, or the program cannot be run again.
        """
        there = self.memory if memory is None else bytes_of(memory)
        if there is None:
            raise ProfileError('Nobody said how much memory there is. Instead: report.largest_batch("80GiB").')
        found: LargestSize = self.formula("B").largest(there)
        return found

    def check(self, device: str | torch.device | None = None, tolerance: float = 0.05) -> Check:
        """Runs the program on real tensors, and compares what torch's allocator and its operators say with the report.

        What is run is a copy, so nothing of yours changes: real tensors keep their values, and those without data get
        random ones (integers zeros). It runs twice: once as it is, for memory, and once observed, for its products.

        Args:
            device: Where, as "cpu" or "cuda"; where the report says that it runs if left out. On another device the
                program is predicted again for that.
            tolerance: How far the peaks may be apart, as a part of the real one.

        Returns:
            A `Check`, which is true if peaks are as near as that and products are equal. Printed, it is a table.

        Raises:
            ProfileError: The device is not there, or has too little memory; or the report is of a block.

        >>> import subclass_aot as sa
        >>> check = sa.profile(torch.nn.Linear(64, 64), torch.empty(8, 64)).check()
        >>> bool(check), check.peak_error, check.first
        (True, 0.0, None)
        """
        return check(self, device, tolerance)

    def to_json(self) -> str:
        """Returns the figures as JSON."""
        return as_json(self)

    def memory_viz(self, path: str | os.PathLike[str]) -> None:
        """Writes the pickle that torch's memory viewer reads.

        Args:
            path: The file.
        """
        write_snapshot(self, path)

    def plot(self, path: str | os.PathLike[str], over: str = "bytes") -> None:
        """Draws memory over the run by kind, its phases and its peak, and products by module; it needs matplotlib.

        Args:
            path: The picture, as "out.png".
            over: "bytes", for the bytes that were allocated so far, or "time", for the time at best.

        Raises:
            ProfileError: There is no matplotlib, no such axis, no device for time, or no picture with such an ending.
        """
        plot(self, path, over)

    def __str__(self) -> str:
        """Returns the report as a table."""
        return table(self)

    def __sub__(self, other: Report) -> str:
        """Returns what changes from another run to this one, as a table."""
        return difference(self, other)
