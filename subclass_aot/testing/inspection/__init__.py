"""Shows what a wrapper class is made of, and what works with it: `python -m subclass_aot inspect`.

Or what is in a file of compiled functions.
"""

from subclass_aot.testing.inspection.compiled_file import describe_file as describe_file
from subclass_aot.testing.inspection.describe import describe as describe
from subclass_aot.testing.inspection.describe import find_class as find_class
from subclass_aot.testing.inspection.offers import offers_of as offers_of
