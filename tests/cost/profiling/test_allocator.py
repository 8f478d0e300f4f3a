"""What torch's profiler noted of allocators."""

import torch

from subclass_aot.cost.profiling import allocator
from subclass_aot.cost.profiling.allocator import bytes_free, changes_of, real_peak


def test_changes_are_told_with_the_operators_that_made_them() -> None:
    x = torch.ones(10, 100)

    def run() -> torch.Tensor:
        return x.exp().relu()

    made, activated, freed = changes_of(run)
    assert made.nbytes == activated.nbytes == -freed.nbytes == 4000
    assert list(made.operators) == ["exp"] and list(activated.operators)[-1] in ("relu", "clamp_min")
    assert made.operators["exp"] == 0 and activated.operators["relu"] == 1
    assert real_peak(run, base=4000) == 12_000


def test_a_machine_has_memory() -> None:
    free = bytes_free(torch.device("cpu"))
    assert free is None or 1 << 20 < free < 1 << 60
    assert all(n >= 0 for n in allocator._in_group())
