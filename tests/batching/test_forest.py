"""The forest: structure and token ids as arrays, the cache of ids, and texts that are too long."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import W, built, discussion, discussions, forest, parent_arrays, path_to, tokenizer
from ramify.batching import forest as module
from ramify.batching.forest import Forest, node_seeds
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.tokenizer import Tokenizer
from ramify.tree import NO_PARENT


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return built(discussions(4, 9), tmp_path)


def texts_of(own: Forest) -> list[list[int]]:
    return [own.ids[start : start + length].tolist() for start, length in zip(own.start, own.length)]


def expected_texts(store: Store) -> list[list[int]]:
    return [tokenizer().encode(text) for text in store.texts(range(store.num_nodes))]


def test_structure_and_ids(store):
    own = Forest.open(store, tokenizer(), 32)
    assert texts_of(own) == expected_texts(store)
    assert own.num_trees == 4
    assert own.tree_of(np.array([0, 9, 10, 39])).tolist() == [0, 0, 1, 3]
    for tree in range(4):
        first, stop = own.offsets[tree : tree + 2]
        parent = store.tree(tree).parent
        assert own.parent[first:stop].tolist() == np.where(parent >= 0, parent + first, NO_PARENT).tolist()
        assert own.depth[first:stop].tolist() == [len(path_to(parent, node)) for node in range(len(parent))]
        assert (own.root[first:stop] == first).all()
    assert own.node.tolist() == list(range(40))


def test_gather():
    own = forest([discussion(W, lengths=[3] * len(W))])
    nodes, lengths = np.array([4, 0, 9]), np.array([2, 3, 0])
    expected = [token for node, length in zip(nodes, lengths) for token in texts_of(own)[node][:length]]
    assert own.gather(nodes, lengths).tolist() == expected
    assert len(own.gather(nodes[:0], lengths[:0])) == 0


# --- the cache of token ids ---------------------------------------------------------------------------------------------------


def caches(folder: Path) -> list[Path]:
    return sorted(folder.glob("tokens-*"))


def refuse(*_: object) -> None:
    raise AssertionError("the texts were tokenized again")


def test_second_opening_reads_the_cache(store, monkeypatch):
    first = Forest.open(store, tokenizer(), 32)
    (cache,) = caches(store.path)
    assert cache.name == f"tokens-{store.hash[:16]}-{tokenizer().hash}"
    monkeypatch.setattr(Tokenizer, "encode_batch", refuse)
    again = Forest.open(Store.open(store.path), tokenizer(), 16)
    assert texts_of(again) == texts_of(first)
    assert isinstance(again.ids, np.memmap)
    assert again.ids.dtype == np.uint16


def test_another_tokenizer_has_another_cache(store):
    Forest.open(store, tokenizer(), 32)
    other = Tokenizer.train(["aa ab ba be bo"] * 9, vocab_size=40)
    own = Forest.open(store, other, 32)
    assert len(caches(store.path)) == 2
    assert texts_of(own) == [other.encode(text) for text in store.texts(range(store.num_nodes))]


def test_large_vocabularies_need_wider_ids(store, monkeypatch):
    monkeypatch.setattr(Tokenizer, "vocab_size", property(lambda self: 2**16 + 1))
    assert Forest.open(store, tokenizer(), 32).ids.dtype == np.uint32


def test_leftovers_of_a_killed_process_are_removed_unread(store):
    name = f"tokens-{store.hash[:16]}-{tokenizer().hash}"
    partial = store.path / f".{name}.partial-x"
    partial.mkdir()
    partial.with_name(f"{partial.name}.lock").touch()
    for file in ("ids.npy", "starts.npy", "ids.raw"):
        (partial / file).write_bytes(b"half")
    assert texts_of(Forest.open(store, tokenizer(), 32)) == expected_texts(store)
    assert texts_of(Forest.open(store, tokenizer(), 32)) == expected_texts(store)
    assert not partial.exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(errno.ENOSPC, "No space left on device")])
def test_interrupted_tokenization_leaves_nothing(store, monkeypatch, stop):
    def encode(*_):
        raise stop

    monkeypatch.setattr(Tokenizer, "encode_batch", encode)
    with pytest.raises(KeyboardInterrupt if stop is KeyboardInterrupt else RamifyError):
        Forest.open(store, tokenizer(), 32)
    assert not list(store.path.glob("tokens-*"))


def test_read_only_store(store, tmp_path, monkeypatch):
    """Ids then lie under the user's cache folder, and are found there."""
    shut = {store.path}
    make = Path.mkdir

    def mkdir(self: Path, *args: object, **options: object) -> None:
        if self.parent in shut:
            raise OSError(errno.EROFS, "Read-only file system")
        make(self, *args, **options)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    first = Forest.open(store, tokenizer(), 32)
    assert texts_of(first) == expected_texts(store)
    assert caches(store.path) == []
    assert len(caches(tmp_path / "cache" / "ramify")) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "encode_batch", refuse)
        assert texts_of(Forest.open(store, tokenizer(), 32)) == texts_of(first)
    shut.add(tmp_path / "cache" / "ramify")
    other = Tokenizer.train(["aa ab ba be bo"] * 9, vocab_size=40)
    with pytest.raises(RamifyError, match="token ids cannot be stored"):
        Forest.open(store, other, 32)


def test_cache_needs_no_home_folder(store, monkeypatch):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert texts_of(Forest.open(store, tokenizer(), 32)) == expected_texts(store)
    assert len(caches(store.path)) == 1


def test_damaged_ids_are_named(store):
    Forest.open(store, tokenizer(), 32)
    (cache,) = caches(store.path)
    (cache / "ids.npy").write_bytes(b"no array")
    with pytest.raises(RamifyError, match=rf"{cache} is damaged .* Remove this folder; it is then rebuilt"):
        Forest.open(store, tokenizer(), 32)


def test_cached_ids_are_readable_as_the_umask_allows(store):
    before = os.umask(0o022)
    try:
        Forest.open(store, tokenizer(), 32)
    finally:
        os.umask(before)
    (cache,) = caches(store.path)
    assert cache.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in cache.iterdir()} == {0o644}


def test_full_disk_leaves_nothing_behind(store, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.np, "save", full)
    with pytest.raises(RamifyError, match="No space left on device"):
        Forest.open(store, tokenizer(), 32)
    assert caches(store.path) == []


def test_store_of_empty_texts(tmp_path):
    store = built([discussion(W, lengths=[0] * len(W))], tmp_path)
    assert Forest.open(store, tokenizer(), 32).length.sum() == 0
    assert Forest.open(store, tokenizer(), 32, "chain").num_trees == 1


# --- texts that are too long --------------------------------------------------------------------------------------------------


@given(parent=parent_arrays(max_comments=10), data=st.data())
@settings(max_examples=50)
def test_chain_attaches_the_rest_below(parent, data):
    lengths = data.draw(st.lists(st.integers(0, 20), min_size=len(parent), max_size=len(parent)))
    tree = discussion(parent, lengths=lengths)
    room = 6
    before = forest([discussion(W, name="w"), tree], room + 2)
    own = forest([discussion(W, lengths=[1] * len(W), name="w"), tree], room + 2, "chain")
    first, stop = own.offsets[1:3].tolist()
    whole = texts_of(before)[len(W) :]
    # Parts of each text, by the node of the store that they come from.
    parts = {node: [index for index in range(first, stop) if own.node[index] == len(W) + node] for node in range(len(parent))}
    assert [index for node in range(len(parent)) for index in parts[node]] == list(range(first, stop))
    for node, own_parts in parts.items():
        assert len(own_parts) == max(1, -(-lengths[node] // room))
        assert [token for index in own_parts for token in texts_of(own)[index]] == whole[node]
        assert all(own.length[index] == room for index in own_parts[:-1])
        # The first part is a child of the last part of the text's parent; each further part is a child of the part before.
        above = parts[parent[node]][-1] if parent[node] >= 0 else NO_PARENT
        assert own.parent[own_parts].tolist() == [above, *own_parts[:-1]]
        assert (own.root[own_parts] == first).all()
        assert own.depth[own_parts].tolist() == [len(path_to(own.parent.tolist(), index)) for index in own_parts]
    assert (own.parent < np.arange(len(own.parent))).all()


def test_cut_tokens_are_counted():
    tree = discussion([-1, 0, 0], lengths=[3, 10, 6])
    cut, chained = forest([tree], 8), forest([tree], 8, "chain")
    assert cut.cut == {"texts": 3, "tokens": 19, "texts_over": 1, "tokens_over": 4}
    # Nothing of a chained text is lost.
    assert chained.cut == {"texts": 3, "tokens": 19, "texts_over": 0, "tokens_over": 0, "texts_chained": 1}
    assert (len(cut.node), len(chained.node)) == (3, 4)


@pytest.mark.ill_typed
def test_unknown_overflow():
    with pytest.raises(RamifyError, match="'truncate' or 'chain'"):
        forest([discussion(W)], 8, "wrap")


def test_with_text():
    own = forest([discussion(W, lengths=[3] * len(W))])
    changed = own.with_text(4, [7, 8, 9, 10])
    assert texts_of(changed)[4] == [7, 8, 9, 10]
    assert [text for node, text in enumerate(texts_of(changed)) if node != 4] == [
        text for node, text in enumerate(texts_of(own)) if node != 4
    ]
    assert len(texts_of(own)[4]) == 3


def test_node_seeds_depend_only_on_ids():
    trees = discussions(3, 5)
    seeds = node_seeds(Store.from_trees(trees), np.arange(18))
    assert len(set(seeds.tolist())) == 18
    turned = Store.from_trees([discussion(tree.parent.tolist(), seed=7, name=tree.id) for tree in trees[::-1]])
    assert node_seeds(turned, np.arange(18)).reshape(3, 6)[::-1].ravel().tolist() == seeds.tolist()
    assert node_seeds(Store.from_trees(trees), [4]).tolist() == [seeds[4]]
    elsewhere = Store.from_trees([replace(trees[0], id="another")])
    assert set(node_seeds(elsewhere, np.arange(6)).tolist()).isdisjoint(seeds.tolist())


@pytest.mark.parametrize("overflow", ["truncate", "chain"])
@pytest.mark.parametrize("trees", [[], [0], [0, 1, 2], [1, 3, 4, 8], range(9)], ids=str)
def test_pieces_are_counted_in_chosen_trees(monkeypatch, trees, overflow):
    monkeypatch.setattr(module, "COUNTED", 7)
    own = forest(discussions(9, 12), max_tokens=8, overflow=overflow)
    expected = np.zeros(61, np.int64)
    for tree in trees:
        nodes = np.arange(own.offsets[tree], own.offsets[tree + 1])
        np.add.at(expected, own.gather(nodes, own.length[nodes]), 1)
    assert own.piece_counts(np.array(list(trees), dtype=np.int64), 61).tolist() == expected.tolist()
