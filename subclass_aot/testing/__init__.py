"""Help for tests of tensor subclasses: comparison of wrapper trees, and random trees and programs for hypothesis.

`trees` and `programs` are imported by name, since they need hypothesis.
"""

from subclass_aot.testing.compare import cut_off as cut_off
from subclass_aot.testing.compare import dense_leaves as dense_leaves
from subclass_aot.testing.compare import difference as difference
from subclass_aot.testing.compare import rebuilt as rebuilt
from subclass_aot.testing.compare import sharing as sharing
