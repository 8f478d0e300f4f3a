"""Serves operators on wrappers: by rules of their author, built-in ones, plain tensors; and checks these."""
