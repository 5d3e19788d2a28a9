"""Who is spoken to."""

import pytest

from ramify.disentangle.data.names import Names, common_words, reserved, spoken_words
from ramify.disentangle.data.spelling import LINK, USER, spelled
from ramify.readers.chat import SYSTEM
from ramify.tree import Node


def names(*authors: str) -> Names:
    known = Names()
    for author in authors:
        known.add(author)
    return known


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ann: hello", ["ann"]),
        ("Ann, hello", ["ann"]),
        ("ask @ann!", ["ann"]),
        ("(ann)", ["ann"]),
        ("anna ann2", []),
        ("ann bob ann", ["ann", "bob"]),
        ("|carl| carl carl|", ["|carl|", "carl"]),
        ("12345: hi", []),
        ("please help", []),
        ("", []),
    ],
)
def test_names_are_found_with_punctuation_around_them(words: str, found: list[str]) -> None:
    assert names("Ann", "bob", "|Carl|", "12345", "please").among(words.split()) == found


def test_short_names_are_only_names_where_somebody_is_called() -> None:
    known = names("ng", "jo")
    assert known.among(["ng", "said", "jo!", "(ng)", "jo."]) == []
    assert known.among(["ng:", "hi"]) == ["ng"]
    assert known.among(["hi", "@jo"]) == ["jo"]
    assert known.among(["jo,", "hi"]) == ["jo"]


def test_channels_and_titles_are_nobody() -> None:
    assert names("#ubuntu", "Topic:", "(#ann").among(["#ubuntu", "ubuntu", "topic:", "(#ann", "ann"]) == []


def test_people_in_brackets() -> None:
    assert names("[Frank]").among(["frank:", "[frank]", "Frank"]) == ["frank", "[frank]"]


def test_names_of_several_words_are_one_word() -> None:
    known = names("Bob Builder", "Bob Builder Jr.", "ann")
    assert known.joined("@Bob Builder flour and  Bob") == "@Bob_Builder flour and Bob"
    assert known.joined("yes bob builder jr., ok") == "yes bob_builder_jr., ok"
    assert known.among(known.joined("Bob Builder: hi ann").split()) == ["bob_builder", "ann"]
    assert names("ann").joined("two  spaces stay") == "two  spaces stay"
    clan = names("[TAG] Bob Builder")
    assert clan.among(clan.joined("@[TAG] Bob Builder: hi").split()) == ["[tag]_bob_builder"]


def test_reserved_words_hold_common_words_and_no_strange_ones() -> None:
    assert {"ubuntu", "help", "linux", "thanks", "hardy", "warty", "whois"} <= reserved()
    assert all(word == word.lower() and word.split() == [word] for word in reserved())


def test_common_words_are_those_said_far_more_often_than_a_namesake_speaks() -> None:
    said = [Node("try fish now", author="ann")] * 120
    assert common_words(said) == ["fish", "now", "try"]
    assert common_words([*said, Node("hm", author="Fish"), Node("try", kind=SYSTEM)]) == ["fish", "now", "try"]
    assert common_words([*said, *[Node("hm", author="(Fish)")] * 2]) == ["now", "try"]
    assert common_words(said[:99]) == []


def test_what_the_channel_says_names_nobody_by_saying_who_does_something() -> None:
    assert spoken_words(Node("=== ann is now known as bob", kind=SYSTEM)) == ["is", "now", "known", "as", "bob"]
    assert spoken_words(Node("ann joined", kind=SYSTEM)) == ["ann", "joined"]
    assert spoken_words(Node("=== is what you type")) == ["===", "is", "what", "you", "type"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ann: it's at http://a.org/x?y=1, see...", [USER, ":", "it's", "at", LINK, "see", "..."]),
        ("apt-get install gtk2.0!", ["apt-get", "install", "gtk2.0", "!"]),
        ("@bob thanks", ["@", USER, "thanks"]),
        ("don\u2019t", ["don", "\u2019", "t"]),
        ("", []),
        ("\U0001f600 ok", ["\U0001f600", "ok"]),
    ],
)
def test_words_are_in_lower_case_with_punctuation_apart(text: str, words: list[str]) -> None:
    assert spelled(text, names("ann", "bob")) == words
