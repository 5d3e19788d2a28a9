import pytest

from ramify.readers import markup
from ramify.readers.markup import MarkupError, XmlParser, html_to_text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("plain", "plain"),
        ("  a &amp; b &lt;c&gt; &#8217; ", "a & b <c> \u2019"),
        ("<p>one\ntwo</p>\n\n<p>three</p>", "one two\n\nthree"),
        ("<p>see <a href='http://x.y'>this <b>page</b></a>, please</p>", "see this page, please"),
        ("<p>call <code>f(a  &lt; b)</code></p>", "call f(a < b)"),
        ("<p>do</p><pre><code>if x:\n    y()\n\n\nz\n</code></pre><p>end</p>", "do\n\nif x:\n    y()\n\n\nz\n\nend"),
        ("<ul>\n<li>one</li>\n<li>two<br>three</li>\n</ul>", "one\ntwo\nthree"),
        ("<blockquote><p>quoted</p></blockquote><p>answer</p>", "quoted\n\nanswer"),
        ("<p>a <img src='i.png' alt='a graph'/> b</p>", "a a graph b"),
        ("a<script>alert(1)</script>b<style>p {}</style>", "ab"),
        ("<p>never <b>closed", "never closed"),
        ("</p></pre>1 < 2", "1 < 2"),
        ("a<![CDA[y]]>b", "ab"),
        ("", ""),
    ],
)
def test_html_to_text(html, text):
    assert html_to_text(html) == text


def parse(data: bytes) -> list:
    seen = []
    parser = XmlParser(lambda tag, attributes: seen.append((tag, attributes)), text=seen.append)
    parser.feed(data)
    parser.feed(b"", final=True)
    return seen


def test_xml_events():
    assert parse(b'\xef\xbb\xbf<a x="1 &lt; 2">t&#233;xt<b/></a>') == [("a", {"x": "1 < 2"}), "téxt", ("b", {})]


BOMB = b'<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]><l>&c;</l>'


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (BOMB, "the definition of the entity 'a'"),
        (b'<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/hostname">]><l>&x;</l>', "the definition of the entity 'x'"),
        (b'<!DOCTYPE l [<!ENTITY % x SYSTEM "http://localhost/x">%x;]><l/>', "the definition of the entity 'x'"),
        (b"<l>&unknown;</l>", "undefined entity"),
        (b"<a>" * 1_001, "nested deeper than 1,000"),
        (b"<a><b></a>", "mismatched tag"),
        (b'<a b="', "unclosed token"),
        (b"<a>\x00</a>", "not well-formed"),
        (b"<a>\xff</a>", "not well-formed"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "unknown encoding"),
        (b"", "no element found"),
    ],
)
def test_xml_refusals(data, message):
    with pytest.raises(MarkupError, match=message):
        parse(data)


def test_external_definitions_are_not_fetched():
    assert parse(b'<!DOCTYPE l SYSTEM "file:///etc/hostname"><l>&hidden;x</l>') == [("l", {}), "x"]


def test_one_tag_is_bounded(monkeypatch):
    monkeypatch.setattr(markup, "MAX_TOKEN_BYTES", 1_000)
    parser = XmlParser(lambda tag, attributes: None)
    parser.feed(b'<a b="')
    with pytest.raises(MarkupError, match="a tag longer than 1,000 bytes"):
        parser.feed(b"x" * 2_000)


def test_faults_name_their_place():
    with pytest.raises(MarkupError) as fault:
        parse(b"<a>\n<b>\n</a>")
    assert (fault.value.line, fault.value.offset) == (3, 10)
