"""What pyproject.toml cannot say in a stable way: the extension. Without it everything works, a little slower."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("subclass_aot._native._exact", ["subclass_aot/_native/exact.c"], optional=True)])
