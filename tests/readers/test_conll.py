"""CoNLL's tables of tokens: layouts, documents, splits, and rows that do not fit."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.dataset.build import build
from ramify.errors import RamifyError
from ramify.readers import detect_format
from ramify.readers.base import ReadCounts
from ramify.readers.conll import places, read, refuses

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC
call NN I-NP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP B-LOC
"""
CONLL_2000 = "He PRP B-NP\nreckons VBZ B-VP\n\nthe DT B-NP\ndeficit NN I-NP\n"


@pytest.fixture
def trees(tmp_path):
    def of(text, name="eng.train", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        counts = ReadCounts()
        return list(read([path], counts, **options)), counts

    return of


def tagged(tree):
    """The tokens of a sentence, cut out of its text, with their tags."""
    (node,) = tree.nodes
    return [(node.text[start:end], tag) for (start, end), tag in zip(node.label["tokens"], node.label["tags"], strict=True)]


def test_documents_of_conll_2003(trees):
    sentences, counts = trees(CONLL_2003)
    assert [tree.nodes[0].text for tree in sentences] == ["EU rejects German call", "Peter Blackburn", "BRUSSELS"]
    assert tagged(sentences[0]) == [("EU", "B-ORG"), ("rejects", "O"), ("German", "B-MISC"), ("call", "O")]
    assert [tree.meta for tree in sentences] == [{"group": f"eng.train/{number}", "split": "train"} for number in (1, 1, 2)]
    assert sentences[2].id == "eng.train/0000000003"
    assert (counts.read, counts.skipped) == (3, {})


@pytest.mark.parametrize(
    ("tags", "expected"), [("last", ["B-NP", "B-VP"]), ("3", ["B-NP", "B-VP"]), ("2", ["PRP", "VBZ"]), ("1", ["He", "reckons"])]
)
def test_columns_by_number(trees, tags, expected):
    sentences, _ = trees(CONLL_2000, "chunks.txt", tags=tags)
    assert sentences[0].nodes[0].label["tags"] == expected
    assert sentences[0].meta == {}


def test_tabs_numbers_before_tokens_and_spaces_in_tokens(trees):
    sentences, counts = trees("1\tNew\u00a0York\tB-LOC\n2\tde la\tO\n", token="2")
    assert tagged(sentences[0]) == [("New\u00a0York", "B-LOC"), ("de la", "O")]
    assert not counts.skipped


def test_the_first_column_may_count_the_words(trees):
    table = "0\tOtters\tNNS\tB-X\n1\tdive\tVBP\tO\n\n0\tHush\tUH\tO\n"
    with pytest.raises(RamifyError, match=r"token=1: the first column of .* counts the words.*--option token=2, and"):
        trees(table)
    assert tagged(trees(table, token="2", tags="3")[0][0]) == [("Otters", "NNS"), ("dive", "VBP")]
    numbers, _ = trees("1 CD\n2 CD\n\n12 CD\n")
    assert numbers[1].nodes[0].text == "12"
    by_spaces, _ = trees("1  Otters  otter  NOUN NNS _ 2 nsubj _ _\n2 dive dive VERB VBP _ 0 root _ _\n")
    assert tagged(by_spaces[0]) == [("Otters", "NOUN"), ("dive", "VERB")]


def test_names_of_columns_above_conll_u(trees):
    table = "# global.columns = ID UPOS FORM X:TAG\n# text = Otters\n1\tNOUN\tOtters\t*\n2-3\t_\tdel\t*\n2\tADP\tde\t1\n"
    (tree,), counts = trees(table, "a.cupt")
    assert tagged(tree) == [("Otters", "NOUN"), ("de", "ADP")]
    assert counts.kept == {"multiword_token": 1}
    assert tagged(trees(table, tags="last")[0][0]) == [("Otters", "*"), ("de", "1")]
    lemmas = table.replace("UPOS", "LEMMA")
    with pytest.raises(RamifyError, match=r"has no column UPOS; it has ID, LEMMA, FORM, X:TAG\. .* --option tags=4\."):
        trees(lemmas)
    assert tagged(trees(lemmas, tags="4")[0][0])[0] == ("Otters", "*")


def test_sources_above_sentences(trees):
    table = "#\thttp://a.example [3]\n1\tOtters\tB-X\tO\n\n#\thttp://b.example\n1\tHush\tO\tO\n2\t#\tO\tO\n"
    sentences, counts = trees(table, token="2", tags="3")
    assert [tagged(tree) for tree in sentences] == [[("Otters", "B-X")], [("Hush", "O"), ("#", "O")]]
    assert not counts.skipped
    assert tagged(trees("#\tO\notters\tB-X\n")[0][0]) == [("#", "O"), ("otters", "B-X")]


def test_no_tags(trees):
    sentences, counts = trees("EU\nrejects\n\nit\n")
    assert sentences[0].nodes[0].label == {"tokens": [[0, 2], [3, 10]]}
    assert counts.read == 2


def test_bad_rows_are_counted_and_listed(trees):
    sentences, counts = trees("a X O\nb X\nc X O\n\nd X O\n\ne X O O\n\n\n\nf X O\n")
    assert [tree.nodes[0].text for tree in sentences] == ["d", "f"]
    # Numbers count the sentences of the file, whether they are left out or not.
    assert [tree.id[-2:] for tree in sentences] == ["02", "04"]
    assert (counts.read, counts.skipped) == (4, {"bad_row": 2})
    assert [place.rpartition("/")[2] for place in counts.examples["bad_row"]] == [
        "eng.train, line 2: 2 columns, not 3",
        "eng.train, line 7: 4 columns, not 3",
    ]
    empty, counts = trees("a\tX\tO\nb\t\tO\n\nc\tX\tO\n", tags="2")
    assert [tree.nodes[0].text for tree in empty] == ["c"]
    assert counts.examples["bad_row"][0].endswith("line 2: an empty token or tag")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tags": "5"}, r"option tags=5 is invalid\. Expected a column from 1 to 4, as .*eng\.train has\."),
        ({"token": "9"}, "option token=9 is invalid"),
        ({"tags": "0"}, "the number of a column, from 1, or last"),
        ({"token": "last"}, r"the number of a column, from 1\."),
        ({"encoding": "klingon"}, "encoding='klingon'"),
    ],
)
def test_options_that_do_not_fit(trees, options, message):
    with pytest.raises(RamifyError, match=message):
        trees(CONLL_2003, **options)


def test_a_data_set_of_several_files(tmp_path):
    (tmp_path / "eng.train").write_text(CONLL_2003)
    (tmp_path / "eng.testa").write_text(CONLL_2003.replace("EU", "UN"))
    (tmp_path / "eng.testb.gz").write_bytes(gzip.compress(CONLL_2003.replace("EU", "AU").encode()))
    files = [tmp_path / name for name in ("eng.train", "eng.testa", "eng.testb.gz")]
    assert detect_format(files) == "conll"
    store = build(files, "conll", tmp_path / "data")
    assert [len(store.split(split)) for split in ("train", "dev", "test")] == [3, 3, 3]
    node = store.tree(int(store.split("dev")[0])).nodes[0]
    assert json.loads(json.dumps(node.label)) == node.label
    shares = build(files, "conll", tmp_path / "shares", split=(1, 0, 0), options={"split": "none"})
    assert len(shares.split("train")) == 9


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("just some words\nin lines\n", "in lines"),
        ("a O\nb O\n", "no tag of a span"),
        ("text\tlabel\ngood\tO\n", "'label'"),
        ("a B-X\nb x B-X\n", "line 2: not a row"),
    ],
)
def test_other_tables_are_not_guessed(tmp_path, text, name):
    assert refuses(tmp_path / "x", text.encode())
    assert name in refuses(tmp_path / "x", text.encode()) or name == "in lines"


UNIVERSAL = """# newdoc id = a
# sent_id = 1
# text = Ann doesn't # wait
1\tAnn\tAnn\tPROPN\tNNP\t_\t2\tnsubj\t_\t_
2-3\tdoesn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdoes\tdo\tAUX\tVBZ\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tsleep\tsleep\tVERB\tVB\t_\t_\t_\t0:root\t_
4\t#\t#\tSYM\tSYM\t_\t2\tpunct\t_\t_

# newdoc
# sent_id = 2
1\tTea\ttea\tNOUN\tNN\t_\t0\troot\t_\t_

1\tHot\thot\tADJ
"""


@pytest.mark.parametrize("name", ["en_ewt-ud-train.conllu", "treebank.txt", "train.conllu.gz"])
def test_universal_dependencies(trees, tmp_path, name):
    text = gzip.compress(UNIVERSAL.encode()) if name.endswith("gz") else UNIVERSAL
    sentences, counts = trees(text, name)
    assert detect_format([tmp_path / name]) == "conll"
    assert [tagged(tree) for tree in sentences] == [
        [("Ann", "PROPN"), ("does", "AUX"), ("n't", "PART"), ("#", "SYM")],
        [("Tea", "NOUN")],
    ]
    assert [tree.meta["group"] for tree in sentences] == [f"{name}/1", f"{name}/2"]
    assert counts.kept == {"multiword_token": 1, "empty_node": 1}
    assert counts.examples["multiword_token"] == [f"{tmp_path / name}, line 5: doesn't"]
    assert counts.skipped == {"bad_row": 1}
    sentences, _ = trees(UNIVERSAL, "treebank.txt", token="3", tags="5")
    assert tagged(sentences[0])[1] == ("do", "VBZ")
    assert tagged(trees(UNIVERSAL, "treebank.txt", tags="last")[0][1]) == [("Tea", "_")]


def test_other_tables_have_no_comments(trees, tmp_path):
    sentences, counts = trees("# O\n#\tB-X\n1-2 O\n".replace("\t", " "), "eng.train")
    assert tagged(sentences[0]) == [("#", "O"), ("#", "B-X"), ("1-2", "O")]
    assert not counts.kept
    assert refuses(tmp_path / "ten.tsv", b"1\ta\tb\tc\td\te\tsome words\tg\th\ti\n" * 3) == (
        "line 1: 'i' is no tag of a span, such as B-LOC or O"
    )


def test_sentences_as_long_as_memory_are_left_out(trees, monkeypatch):
    monkeypatch.setattr("ramify.readers.conll.MAX_TOKENS", 3)
    sentences, counts = trees("a O\nb O\nc O\nd O\n\ne O\n")
    assert [tree.nodes[0].text for tree in sentences] == ["e"]
    assert "line 4: the sentence from line 1 on has more than 3 tokens" in counts.examples["bad_row"][0]


WORD = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=6)


@given(st.lists(WORD, min_size=1, max_size=8))
def test_places_are_those_of_the_tokens(tokens):
    text = " ".join(tokens)
    assert [text[start:end] for start, end in places(tokens)] == tokens
