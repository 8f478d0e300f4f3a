"""Traced tensors that another thread meets."""

import subclass_aot.subjects.other_threads.use  # noqa: F401  # which fills the places
