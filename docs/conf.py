"""Sphinx configuration; `make docs` builds with warnings as errors."""

import re

import subclass_aot

project = "subclass_aot"
author = "the subclass_aot developers"
project_copyright = f"2026, {author}"
release = subclass_aot.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "benchmarks/*", "environments/*"]  # tables that `make` writes, which pages include
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "show-inheritance": True}

html_theme = "furo"
html_title = "subclass_aot"


def setup(app):
    # Docstrings are written as Markdown, where one backtick is code and a letter may follow it.
    def markdown_code(app, what, name, obj, options, lines):
        lines[:] = [re.sub(r"(?<!`)`([^`]+)`(?!`)(?=(\w?))", _as_rst, line) for line in lines]

    app.connect("autodoc-process-docstring", markdown_code, priority=400)


def _as_rst(match):
    return f"``{match[1]}``" + ("\\ " if match[2] else "")
