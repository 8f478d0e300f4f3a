"""Facts: the one list of what a signature depends on of a call, and what differs between two."""

from subclass_aot.engine.facts.code import source_of as source_of
from subclass_aot.engine.facts.fact import Fact as Fact
from subclass_aot.engine.facts.fact import Facts as Facts
from subclass_aot.engine.facts.fact import Kind as Kind
from subclass_aot.engine.facts.modes import Modes as Modes
from subclass_aot.engine.facts.modes import global_state as global_state
from subclass_aot.engine.facts.modes import modes_in as modes_in
from subclass_aot.engine.facts.of_call import facts_of as facts_of
from subclass_aot.engine.facts.of_call import is_of_call as is_of_call
from subclass_aot.engine.facts.of_call import relations_of as relations_of
from subclass_aot.engine.facts.of_objects import ObjectReader as ObjectReader
from subclass_aot.engine.facts.scope import Scope as Scope
from subclass_aot.engine.facts.words import difference as difference
from subclass_aot.engine.facts.words import words as words
from subclass_aot.engine.facts.words import words_of as words_of
