"""Help for tests of tensor subclasses: is a class right, is what is compiled right, and how do tensors differ?

`check_subclass` needs hypothesis where `make` has parameters; nothing else does.
"""

from subclass_aot.testing.check import check_compiled as check_compiled
from subclass_aot.testing.compare import cut_off as cut_off
from subclass_aot.testing.compare import dense_leaves as dense_leaves
from subclass_aot.testing.compare import difference as difference
from subclass_aot.testing.compare import rebuilt as rebuilt
from subclass_aot.testing.compare import sharing as sharing
from subclass_aot.testing.contract import Finding as Finding
from subclass_aot.testing.contract import Report as Report
from subclass_aot.testing.contract import check_subclass as check_subclass
from subclass_aot.testing.printer import non_leaf as non_leaf

__all__ = ["Finding", "Report", "check_compiled", "check_subclass", "difference", "non_leaf"]
