"""Small books of our own for the tests, in the formats of books."""

import zipfile
from pathlib import Path

from ramify.readers import book
from ramify.readers.base import ReadCounts

XHTML = """<?xml version="1.0" encoding="utf-8"?>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"><head><title>{title}</title></head>
<body epub:type="{body}">{content}</body></html>"""

CONTAINER = """<?xml version="1.0"?><container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0">
<rootfiles><rootfile full-path="OEBPS/content.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""


def page(content, title="A Page", body="bodymatter"):
    return XHTML.format(title=title, body=body, content=content)


def package(names, extra_items="", spine="", guide="", language="en"):
    items = "".join(f'<item id="{name}" href="text/{name}" media-type="application/xhtml+xml"/>' for name in names)
    refs = "".join(f'<itemref idref="{name}"/>' for name in names)
    return (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata><dc:title>The Kiln</dc:title><dc:creator>Ann Oak</dc:creator><dc:language>{language}</dc:language>"
        "<dc:identifier>https://example.org/kiln</dc:identifier></metadata>"
        f"<manifest>{items}{extra_items}</manifest><spine {spine}>{refs}</spine>{guide}</package>"
    )


def folder(where: Path, pages: dict[str, str], name: str = "ann-oak_the-kiln") -> Path:
    """A book in the layout of Standard Ebooks."""
    root = where / name
    (root / "src/epub/text").mkdir(parents=True)
    (root / "src/epub/content.opf").write_text(package(pages), "utf-8")
    for file, content in pages.items():
        (root / "src/epub/text" / file).write_text(content, "utf-8")
    return root


def epub(path: Path, pages: dict[str, str], opf: str | None = None, more: dict[str, str | bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        archive.writestr("META-INF/container.xml", CONTAINER)
        archive.writestr("OEBPS/content.opf", opf or package(pages))
        for name, content in pages.items():
            archive.writestr(f"OEBPS/text/{name}", content)
        for name, content in (more or {}).items():
            archive.writestr(name, content)
    return path


def read(*paths: Path, **options):
    """(trees, counts)"""
    counts = ReadCounts()
    return list(book.read(paths, counts, **options)), counts


def shape(tree):
    """The nodes as lines: indentation by depth, kind, and title or text."""
    lines = []
    for index, node in enumerate(tree.nodes):
        shown = node.text if node.label is None else f"[{node.label}] {node.text}".strip()
        lines.append(f"{' ' * int(tree.depth[index])}{node.kind[:3]} {shown}".rstrip())
    return lines


def sentences_of(tree):
    return [node.text for node in tree.nodes if node.text]


def gutenberg(language: str, text: str) -> str:
    """A text of Project Gutenberg in a language, as its header names it."""
    return (
        f"Title: The Kiln\nAuthor: Ann Oak\nLanguage: {language}\n\n*** START OF THE PROJECT GUTENBERG EBOOK THE KILN ***\n\n"
        f"{text}\n\n"
        "*** END OF THE PROJECT GUTENBERG EBOOK THE KILN ***\n"
    )
