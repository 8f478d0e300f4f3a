"""One tensor of each class, the same values every time."""

from __future__ import annotations

import torch

from tests.authors.a_int4 import Int4
from tests.authors.b_nf4 import NF4Weight
from tests.authors.c_lora import Lora
from tests.authors.d_masked import Masked
from tests.authors.e_jagged import Jagged
from tests.authors.f_sparse import Sparse24
from tests.authors.g_units import Quantity
from tests.authors.h_fields import Counting, Parts
from tests.authors.i_float8 import Float8
from tests.authors.k_complex import Complex


def normal(*size: int, seed: int = 0) -> torch.Tensor:
    """Random numbers, the same every time."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


MAKES = {
    "a_int4": lambda: Int4.quantize(normal(8, 64)),
    "b_nf4": lambda: NF4Weight.quantize(normal(8, 128)),
    "c_lora": lambda: Lora(normal(6, 5), normal(2, 5), normal(6, 2)),
    "d_masked": lambda: Masked(normal(3, 4), normal(3, 4) < 0.5),
    "e_jagged": lambda: Jagged.of(normal(2, 4), normal(3, 4), normal(1, 4)),
    "f_sparse": lambda: Sparse24.prune(normal(6, 16)),
    "g_units": lambda: Quantity(normal(3, 4), (1, 0, -1)),
    "h_fields": lambda: Parts([normal(2, 3), normal(2, 3)], {"gain": torch.ones(4, 1) * 2}, torch.ones(3)),
    "h_counting": lambda: Counting(normal(3, 4)),
    "i_float8": lambda: Float8.quantize(normal(16, 16), normal(16, 16).abs().amax()),
    "k_complex": lambda: Complex(normal(3, 3), normal(3, 3, seed=1)),
}


CHECKED = {
    "d_masked": (lambda: Masked(normal(4, 6), torch.ones(4, 6, dtype=torch.bool)), None),
    "e_jagged": (lambda: Jagged.of(normal(3, 4), normal(3, 4, seed=1)), None),
    "g_units": (MAKES["g_units"], [lambda x: x.number]),
}
"""Where a class does not mean the dense tensor: a tensor or a reading for which every operator means the same."""
