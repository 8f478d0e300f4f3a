"""Declarations of a class statement: fields, outer metadata, constructor, gradients."""
