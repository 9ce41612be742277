"""How Sphinx makes the site of the pages of this repository, as they are (ADR 81). `make docs` runs it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

project = "calve"
html_title = "calve"
copyright = "the calve authors"
root_doc = "docs/site/index"
include_patterns = [
    f"{root_doc}.md",
    "*.md",
    "docs/*.md",
    "docs/*/*.md",
    "examples/*/README.md",
    "bench/*.md",
]

extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
highlight_language = "text"
# Outputs of commands are no language; decisions are listed on their own page.
suppress_warnings = ["misc.highlighting_failure", "toc.not_included"]

html_theme = "furo"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["diagrams.js"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6a8f", "color-brand-content": "#0b6a8f"},
    "dark_css_variables": {"color-brand-primary": "#6cc5e3", "color-brand-content": "#6cc5e3"},
}


class Mermaid(Directive):
    """A diagram, which `static/diagrams.js` draws in the browser, also without a network."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        drawn = escape("\n".join(self.content))
        return [nodes.raw("", f'<pre class="mermaid">{drawn}</pre>', format="html")]


def setup(app: Sphinx) -> None:
    app.add_directive("mermaid", Mermaid)
    app.connect("doctree-read", leave_out_of_search)


def leave_out_of_search(app: Sphinx, _: nodes.document) -> None:
    """A search is for what to do now: it finds neither decisions nor the changes of releases."""
    name = app.env.current_document.docname
    if name.startswith("docs/adr/") or name == "CHANGELOG":
        app.env.metadata[name]["nosearch"] = True
