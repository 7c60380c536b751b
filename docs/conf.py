"""The documentation site: ``sphinx-build -W --keep-going -n docs OUT``.

You need no network to build the site or to read it. The build runs no notebook: it
shows the outputs that each one stores. The pages read well on GitHub too; `made.py`
adapts them to the site.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import made  # noqa: E402
from docutils.nodes import SkipNode  # noqa: E402
from latex2mathml.converter import convert  # noqa: E402

from tfxformer import __version__  # noqa: E402
from tfxformer.console import start_tensorflow  # noqa: E402

start_tensorflow()

project = "tfxformer"
author = "The tfxformer authors"
project_copyright = "the tfxformer authors, Apache-2.0"
version = release = __version__
language = "en"
smartquotes = False  # two hyphens are an option, not a dash
toc_object_entries_show_parents = "hide"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_merge_streams = True
# No page has a widget; Sphinx would load its scripts from the network.
nb_ipywidgets_js = {}
nb_mime_priority_overrides = [
    ("html", "text/html", 0),
    ("html", "image/svg+xml", 1),
    ("html", "image/png", 2),
]

# Docstrings put code in single back-ticks; names of this package become links.
default_role = "py:obj"
# Looking up names of other projects would need the network.
nitpick_ignore_regex = [("py:.*", r"(?!tfxformer\.).*")]
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = [("Call arguments", "params_style")]
viewcode_line_numbers = True

# The button copies commands without their prompt, and without their output.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "tfxformer"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
html_math_renderer = "mathml"


def setup(app):
    """Connects the functions of `made.py`, and shows formulas as MathML."""
    app.connect("config-inited", made.copy_notebooks)
    app.connect("config-inited", made.check_cheat_sheet)
    app.connect("source-read", made.adapt)
    app.connect("build-finished", made.write_files)
    app.connect("autodoc-process-docstring", made.adapt_docstring, priority=400)
    app.connect("autodoc-process-signature", made.plain_signature)
    app.connect("missing-reference", made.resolve_alias)
    # Browsers show MathML without a script, and screen readers read it aloud.
    app.add_html_math_renderer("mathml", (_inline_math, None), (_block_math, None))


def _inline_math(visitor, node):
    visitor.body.append(convert(node.astext()))
    raise SkipNode


def _block_math(visitor, node):
    math = convert(node.astext(), display="block")
    visitor.body.append(f'<div class="math">{math}</div>')
    raise SkipNode


# Answers in the notebooks hold commands, such as `!tfxformer train`, among Python.
suppress_warnings = ["misc.highlighting_failure"]
