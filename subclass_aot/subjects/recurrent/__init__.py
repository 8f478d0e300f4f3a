"""Recurrent layers that oneDNN trains."""

from subclass_aot.subjects.recurrent.lstm import FOR_TRAINING as FOR_TRAINING
from subclass_aot.subjects.recurrent.lstm import LAYER as LAYER
from subclass_aot.subjects.recurrent.lstm import OF_ANY_SIZE as OF_ANY_SIZE
