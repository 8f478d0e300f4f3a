"""`torch.compile(model, backend="subclass_aot")`."""

from subclass_aot.doors.dynamo.backend import backend as backend
