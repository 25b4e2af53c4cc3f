"""The site's settings for Sphinx.  scripts/build_site.sh lays the pages out and runs it."""

import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "scripts")]

import changelog  # noqa: E402

project = "cubinery"
release = version = changelog.version_of(ROOT)
copyright = "the authors of cubinery; Apache-2.0"

extensions = [
    "breathe",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
include_patterns = ["reference/**", "docs/*.md", "*.md"]
# A namespace is declared once in each header's page.
suppress_warnings = ["duplicate_declaration.cpp"]

# Markdown as a code host reads it: anchors of headings, tables, links to files.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

# C++ and C.
breathe_projects = {"cubinery": os.environ.get("CUBINERY_SITE_XML", "")}
breathe_default_project = "cubinery"
breathe_domain_by_file_pattern = {"*c_api.h": "c", "*c_args.h": "c"}
breathe_show_include = False
cpp_maximum_signature_line_length = 90
highlight_language = "none"
default_role = "code"
smartquotes = False  # an option has two hyphens

# Python, from the sources: the native module is not built for it.
autodoc_mock_imports = ["cubinery._core"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"StrPath": "StrPath"}
python_maximum_signature_line_length = 80
python_display_short_literal_types = True
napoleon_numpy_docstring = False
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"cubinery {version}"
html_static_path = ["static", os.environ.get("CUBINERY_SITE_STATIC", "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = html_domain_indices = False  # the search finds names
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#2a6f2a", "color-brand-content": "#2a6f2a"},
    "dark_css_variables": {"color-brand-primary": "#8fd18f", "color-brand-content": "#8fd18f"},
}
copybutton_exclude = ".linenos, .gp"


def lead_to_examples(app, name, text):
    """A link to the folder of examples leads to the page that shows them."""
    text[0] = re.sub(r"\]\(((?:\.\./)?)examples/?\)", r"](\1reference/examples.rst)", text[0])


def mark_code(app, what, name, thing, options, lines):
    """Indented lines of a docstring in front of its sections are code."""
    marked, inside = [], False
    for i, line in enumerate(lines):
        if re.fullmatch(r"(Args|Attributes|Raises|Returns):", line):
            marked += lines[i:]
            break
        if line.startswith("    ") and not inside:
            marked += [".. code-block:: python", ""]
        inside = line.startswith("    ") or inside and not line
        marked.append(line)
    lines[:] = marked


def setup(app):
    app.connect("source-read", lead_to_examples)
    app.connect("autodoc-process-docstring", mark_code, priority=400)  # before napoleon
    return {"parallel_read_safe": True}
