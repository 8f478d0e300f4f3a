"""What a call leaves behind beside the writes into tensors, and the code that does it again."""

from subclass_aot.outcome.existed import Existed as Existed
from subclass_aot.outcome.finish import emit_finish as emit_finish
from subclass_aot.outcome.leaks import find_holders as find_holders
from subclass_aot.outcome.reader import read_outcome as read_outcome
from subclass_aot.outcome.recipes import Outcome as Outcome
