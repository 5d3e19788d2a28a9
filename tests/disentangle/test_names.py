"""Names of authors in messages."""

import pytest

from ramify.disentangle.data.names import KnownNames, find_common_words, load_reserved_words, select_spoken_words
from ramify.disentangle.data.splitting import LINK, USER, split_words
from ramify.readers.chat import SYSTEM
from ramify.tree import Node


def names(*authors: str) -> KnownNames:
    known = KnownNames()
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
def test_names_are_found_inside_punctuation(words: str, found: list[str]) -> None:
    assert names("Ann", "bob", "|Carl|", "12345", "please").find_all(words.split()) == found


def test_short_names_count_only_in_addresses() -> None:
    known = names("ng", "jo")
    assert known.find_all(["ng", "said", "jo!", "(ng)", "jo."]) == []
    assert known.find_all(["ng:", "hi"]) == ["ng"]
    assert known.find_all(["hi", "@jo"]) == ["jo"]
    assert known.find_all(["jo,", "hi"]) == ["jo"]


def test_channels_and_titles_are_not_names() -> None:
    assert names("#ubuntu", "Topic:", "(#ann").find_all(["#ubuntu", "ubuntu", "topic:", "(#ann", "ann"]) == []


def test_names_in_brackets() -> None:
    assert names("[Frank]").find_all(["frank:", "[frank]", "Frank"]) == ["frank", "[frank]"]


def test_names_with_a_number_are_mentioned_without_it() -> None:
    known = names("Ann#0042", "Bob Ray#0001", "carl#0003")
    assert known.find_all(known.join_names("@ann and @Bob Ray: hi").split()) == ["ann#0042", "bob_ray#0001"]
    assert known.find_all(["ann#0042", "ann", "ann#0043"]) == ["ann#0042"]
    assert split_words("@ann: hi", known) == ["@", USER, ":", "hi"]
    # Two authors of one name, in any order, are not the author that a mention names.
    for authors in (("ann#0042", "ann#0043"), ("ann", "ann#0042"), ("ann#0042", "ann")):
        assert names(*authors).find_all(["@ann"]) == ["ann"]


def test_names_of_several_words_become_one_word() -> None:
    known = names("Bob Builder", "Bob Builder Jr.", "ann")
    assert known.join_names("@Bob Builder flour and  Bob") == "@Bob_Builder flour and Bob"
    assert known.join_names("yes bob builder jr., ok") == "yes bob_builder_jr., ok"
    assert known.find_all(known.join_names("Bob Builder: hi ann").split()) == ["bob_builder", "ann"]
    assert names("ann").join_names("two  spaces stay") == "two  spaces stay"
    clan = names("[TAG] Bob Builder")
    assert clan.find_all(clan.join_names("@[TAG] Bob Builder: hi").split()) == ["[tag]_bob_builder"]


def test_reserved_words_are_common_words() -> None:
    assert {"ubuntu", "help", "linux", "thanks", "hardy", "warty", "whois"} <= load_reserved_words()
    assert all(word == word.lower() and word.split() == [word] for word in load_reserved_words())


def test_common_words_are_far_more_frequent_than_messages_of_their_namesake() -> None:
    nodes = [Node("try fish now", author="ann")] * 120
    assert find_common_words(nodes) == ["fish", "now", "try"]
    assert find_common_words([*nodes, Node("hm", author="Fish"), Node("try", kind=SYSTEM)]) == ["fish", "now", "try"]
    assert find_common_words([*nodes, *[Node("hm", author="(Fish)")] * 2]) == ["now", "try"]
    assert find_common_words(nodes[:99]) == []


def test_spoken_words_of_system_messages_drop_the_actor() -> None:
    assert select_spoken_words(Node("=== ann is now known as bob", kind=SYSTEM)) == ["is", "now", "known", "as", "bob"]
    assert select_spoken_words(Node("ann joined", kind=SYSTEM)) == ["ann", "joined"]
    assert select_spoken_words(Node("=== is what you type")) == ["===", "is", "what", "you", "type"]


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
def test_words_are_lower_case_and_separate_from_punctuation(text: str, words: list[str]) -> None:
    assert split_words(text, names("ann", "bob")) == words
