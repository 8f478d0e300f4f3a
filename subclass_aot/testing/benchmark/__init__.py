"""Measures what a wrapper class costs beside dense tensors: `python -m subclass_aot bench`; and the clock for it."""

from subclass_aot.testing.benchmark.advice import Advice as Advice
from subclass_aot.testing.benchmark.measure import QUICK as QUICK
from subclass_aot.testing.benchmark.measure import Budget as Budget
from subclass_aot.testing.benchmark.measure import Comparison as Comparison
from subclass_aot.testing.benchmark.measure import Ratio as Ratio
from subclass_aot.testing.benchmark.measure import Side as Side
from subclass_aot.testing.benchmark.measure import compare as compare
from subclass_aot.testing.benchmark.report import Report as Report
from subclass_aot.testing.benchmark.report import bench as bench
from subclass_aot.testing.benchmark.report import plot as plot
from subclass_aot.testing.benchmark.subject import Maker as Maker
from subclass_aot.testing.benchmark.subject import find_maker as find_maker
