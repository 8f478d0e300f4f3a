"""Real tensors that require grad, of which a graph has no gradient."""

from subclass_aot.engine.graph import LISTENERS
from subclass_aot.subjects.lost_gradients.listener import LostGradients

LISTENERS["lost_gradients"] = LostGradients
