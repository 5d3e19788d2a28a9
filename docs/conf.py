"""Sphinx configuration: MyST Markdown pages; `figures.py`, `stream_figures.py`, `nested_figures.py`, `foundation_figures.py`
and `reference.py` compute pictures and numbers during the build."""

import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402
import foundation_figures  # noqa: E402
import nested_figures  # noqa: E402
import reference  # noqa: E402
import stream_figures  # noqa: E402

from ramify.version import __version__  # noqa: E402

project = "Ramify"
author = "The Ramify authors"
release = version = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
# Generated files are included in pages and are not pages themselves.
exclude_patterns = ["_build", "_generated"]

html_theme = "furo"
html_title = "Ramify"
html_static_path = ["_static"]
html_css_files = ["figures.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_math_renderer = "mathml"
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "monokai"


class Drawing(SphinxDirective):
    """Pictures of the scripts above with the content as caption. The SVG is inline, to follow the theme. Several pictures stand
    side by side where the page is wide enough."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        pictures = []
        for name in self.arguments[0].split():
            path = figures.GENERATED / f"{name}.svg"
            if not path.exists():
                raise self.error(f"Drawing {name!r} is in no DRAWINGS. Add it there or correct the name.")
            self.env.note_dependency(str(path))
            pictures.append(path.read_text("utf-8"))
        figure = nodes.figure(classes=["drawing"])
        svg = pictures[0] if len(pictures) == 1 else f'<div class="pictures">{"".join(pictures)}</div>'
        figure += nodes.raw("", svg, format="html")
        caption = nodes.caption()
        for paragraph in self.parse_content_to_nodes():
            caption += paragraph.children if isinstance(paragraph, nodes.paragraph) else [paragraph]
        if caption.children:
            figure += caption
        return [figure]


def math(writer, node) -> None:
    """Write formulas as MathML, which browsers render without a script or network access."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_directive("drawing", Drawing)
    app.add_html_math_renderer("mathml", (math, None), (math, None))
    figures.write()
    stream_figures.write()
    nested_figures.write()
    foundation_figures.write()
    reference.write()
