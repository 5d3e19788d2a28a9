import pytest

from ramify.readers.reddit import author, bare_id, submission_text


@pytest.mark.parametrize(
    ("title", "body", "text"),
    [
        ("Title", "Body", "Title\n\nBody"),
        ("Title", "[removed]", "Title"),
        ("Title", " \n", "Title"),
        (" ", "Body", "Body"),
        ("", "[deleted]", "[deleted]"),
        ("", "", ""),
    ],
)
def test_text_of_a_submission(title, body, text):
    assert submission_text(title, body) == text


@pytest.mark.parametrize(("name", "expected"), [("ann", "ann"), ("[deleted]", None), (None, None), (7, None)])
def test_authors(name, expected):
    assert author(name) == expected


@pytest.mark.parametrize(("name", "expected"), [("t1_ab", "ab"), ("ab", "ab"), ("t3_", None), ("", None), (7, None)])
def test_ids(name, expected):
    assert bare_id(name) == expected
