"""The contract of a traceable wrapper subclass, in clauses, and checks of a class.

A file for each subject has the clauses; their numbers are those of the contract in the documentation.
"""

from subclass_aot.testing.contract.check import check_subclass as check_subclass
from subclass_aot.testing.contract.finding import Finding as Finding
from subclass_aot.testing.contract.report import Report as Report
