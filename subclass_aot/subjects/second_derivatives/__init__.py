"""Second derivatives: `double_backward=True`."""

from subclass_aot.subjects.second_derivatives.again import DoubleBackward as DoubleBackward
