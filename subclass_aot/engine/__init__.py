"""The engine: from a call to the generated function that serves it."""
