"""What a wrapper class is made of, and what works with it, as text: `python -m subclass_aot inspect`."""

from subclass_aot.inspection.describe import describe as describe
from subclass_aot.inspection.describe import find_class as find_class
from subclass_aot.inspection.offers import offers_of as offers_of
