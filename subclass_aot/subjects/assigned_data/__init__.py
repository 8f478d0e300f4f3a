"""Tensors that get the memory of another, by `x.data = y`."""

from subclass_aot.engine.graph import LISTENERS
from subclass_aot.subjects.assigned_data.listener import AssignedData

LISTENERS["assigned_data"] = AssignedData
