"""What is tried after an attempt that failed."""

from __future__ import annotations

import torch

from subclass_aot.engine.call import Arguments
from subclass_aot.engine.graph import Retrace
from subclass_aot.engine.sizes import DynamicSizes
from subclass_aot.engine.trace import Attempt
from subclass_aot.meta.symbols import SizesMustBeKnown


def test_a_failure_changes_sizes_or_options_and_nothing_else() -> None:
    arguments = Arguments.of(torch.add, (torch.rand(2, 3), torch.rand(2, 3)), {})
    attempt = Attempt(arguments, DynamicSizes({"args[0]": {0}, "args[1]": {0}}), parts=True)
    known = attempt.after(SizesMustBeKnown(["args[1]"]))
    assert known.sizes is not None and known.parts and known.options == attempt.options
    again = known.after(Retrace(hashes_by_value=True))
    assert again.options.hashes_by_value and again.sizes is known.sizes and again.parts
    assert again.arguments is arguments and again.handlers == attempt.handlers
