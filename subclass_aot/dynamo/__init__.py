"""`torch.compile(model, backend="subclass_aot")`."""

from subclass_aot.dynamo.backend import backend as backend
