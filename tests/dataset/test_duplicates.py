import json
import random

import pytest

from ramify.dataset import build
from ramify.errors import RamifyError

WORDS = [f"word{number}" for number in range(500)]


def sentence(dice, length=40):
    return " ".join(dice.choices(WORDS, k=length))


def store_of(folder, texts, **options):
    """One tree per text, each with a distinct reply."""
    path = folder / "posts.jsonl"
    rows = [row for number, text in enumerate(texts) for row in (
        {"id": f"{number}", "parent": None, "tree": f"{number}", "text": f"root {number}"},
        {"id": f"{number}c", "parent": f"{number}", "tree": f"{number}", "text": text},
        {"id": f"{number}d", "parent": f"{number}c", "tree": f"{number}", "text": f"answer {number}"},
    )]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build([path], "table", folder / "store", overwrite=True, **options)


def left(store):
    return {id.removesuffix("c") for id in store.ids(range(store.num_nodes)) if id.endswith("c")}


def changed(dice, text, share):
    words = text.split(" ")
    for place in dice.sample(range(len(words)), int(share * len(words))):
        words[place] = "other" + words[place]
    return " ".join(words)


def test_exact_copies_but_for_case_space_and_links(tmp_path):
    dice = random.Random(0)
    original = sentence(dice) + " https://example.org/1"
    texts = [
        original,
        original.upper().replace("HTTPS://EXAMPLE.ORG/1", "https://example.org/2"),
        original.replace(" ", "  \n"),
        changed(dice, original, 0.03),
        "Same here!",
        "same  here!",
        original.replace(" ", "\u00a0\u2003\v"),
    ]
    store = store_of(tmp_path, texts, near_duplicates="exact")
    copies = {"0", "1", "2", "6"}
    assert len(left(store) & copies) == 1
    assert len(left(store) & {"4", "5"}) == 1
    assert "3" in left(store)
    assert store.info["skipped"] == {"near_duplicate": 4}
    assert store.info["kept"]["reattached"] == 4
    first = min(store.find_tree(number) for number in copies)
    assert left(store) & copies == {store.tree_ids([first])[0]}


@pytest.mark.parametrize("method", ["exact", "minhash"])
def test_texts_too_short_to_compare(tmp_path, method):
    store = store_of(tmp_path, ["one", "seven words are not enough for shingles"], near_duplicates=method)
    assert (store.num_nodes, store.info["skipped"]) == (6, {})


@pytest.mark.parametrize("method", ["exact", "minhash"])
def test_empty_chunks_are_not_compared(tmp_path, method):
    """Bots wrote all posts, so all chunks are empty."""
    (tmp_path / "posts.csv").write_text("id,parent,tree,author,text\na,,t,AutoModerator,one\n")
    with pytest.raises(RamifyError, match="no tree found in"):
        build([tmp_path / "posts.csv"], "table", tmp_path / "store", near_duplicates=method, drop_bots=True)


@pytest.mark.parametrize("memory", [64 << 20, 200_000])
def test_minhash_finds_similar_texts_and_no_others(tmp_path, memory):
    """A changed word changes five shingles. 1 of 100 words gives a Jaccard index of .91, and 5 of 100 words give .6."""
    dice = random.Random(1)
    originals = [sentence(dice, 100) for _ in range(60)]
    close = [changed(dice, text, 0.01) for text in originals]
    far = [changed(dice, text, 0.05) for text in originals]
    store = store_of(tmp_path, originals + close + far, near_duplicates="minhash", memory=memory)
    remaining = left(store)
    pairs = [len(remaining & {str(number), str(number + 60)}) for number in range(60)]
    assert pairs.count(1) >= 58
    assert sum(str(number) in remaining for number in range(120, 180)) == 60
    assert store.info["skipped"]["near_duplicate"] == pairs.count(1)


def test_duplicates_do_not_depend_on_the_memory(tmp_path):
    dice = random.Random(2)
    texts = [sentence(dice, 20) for _ in range(300)]
    texts += [dice.choice(texts) for _ in range(300)]
    stores = [
        store_of(tmp_path, texts, near_duplicates=method, memory=memory)
        for method in ("exact", "minhash")
        for memory in (64 << 20, 100_000)
    ]
    assert len({store.hash for store in stores}) == 1
    assert stores[0].info["skipped"]["near_duplicate"] == len(texts) - len(set(texts))
