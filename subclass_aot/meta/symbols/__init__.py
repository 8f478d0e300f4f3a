"""Numbers that only the call knows: sizes, and what depends on data."""

from subclass_aot.meta.symbols.numbers import Bounds as Bounds
from subclass_aot.meta.symbols.numbers import NoAnswer as NoAnswer
from subclass_aot.meta.symbols.numbers import Number as Number
from subclass_aot.meta.symbols.numbers import SizesMustBeKnown as SizesMustBeKnown
from subclass_aot.meta.symbols.numbers import cache_of as cache_of
from subclass_aot.meta.symbols.numbers import is_symbolic as is_symbolic
from subclass_aot.meta.symbols.numbers import key_of as key_of
from subclass_aot.meta.symbols.numbers import lasting_key_of as lasting_key_of
from subclass_aot.meta.symbols.numbers import plain as plain
from subclass_aot.meta.symbols.numbers import solver_in as solver_in
from subclass_aot.meta.symbols.symbols import MoreAssumed as MoreAssumed
from subclass_aot.meta.symbols.symbols import RuntimeAssert as RuntimeAssert
from subclass_aot.meta.symbols.symbols import Symbols as Symbols
from subclass_aot.meta.symbols.symbols import current_symbols as current_symbols
from subclass_aot.meta.symbols.symbols import unbacked_sizes as unbacked_sizes
