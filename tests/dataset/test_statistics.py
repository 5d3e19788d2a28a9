import pytest

from ramify import Node, RamifyError, Tree
from ramify.dataset import Policy, build
from ramify.dataset.statistics import measures, plot, statistics

WIDE = Tree((Node("the post"), *(Node("two words", parents=(0,)) for _ in range(4))), id="wide")
DEEP = Tree((Node("post"), Node("", parents=(0,)), Node("a b c", parents=(1,))), id="deep")


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(f"{WIDE.to_json()}\n{DEEP.to_json()}\n")
    return build([path], "jsonl", tmp_path / "store", policy=Policy(empty="keep"))


def test_measures(store):
    found = {name: sorted(values.tolist()) for name, values in measures(store).items()}
    assert found == {
        "nodes_per_tree": [3, 5],
        "depth": [1, 1, 1, 1, 1, 2],
        "tree_depth": [1, 2],
        "children": [0, 0, 0, 0, 0, 1, 1, 4],
        "width": [1, 4],
        "words": [0, 1, 2, 2, 2, 2, 2, 3],
        "characters": [0, 4, 5, 8, 9, 9, 9, 9],
    }


def test_statistics(store):
    found = statistics(store)
    assert (found["trees"], found["nodes"], found["comments"], found["roots"], found["leaves"]) == (2, 8, 6, 2, 5)
    assert (found["skipped"], found["kept"]) == ({}, {})
    assert found["depth"]["max"] == 2
    assert found["children"]["mean"] == pytest.approx(6 / 8)


@pytest.mark.parametrize("name", ["shape.png", "shape.svg"])
def test_plot(store, tmp_path, name):
    plot(store, tmp_path / name)
    assert (tmp_path / name).stat().st_size > 5_000


def test_plot_of_single_roots(tmp_path):
    path = tmp_path / "trees.jsonl"
    path.write_text(Tree((Node("alone"),), id="t").to_json())
    store = build([path], "jsonl", tmp_path / "store")
    assert statistics(store)["depth"] == {"count": 0}
    plot(store, tmp_path / "shape.svg")
    with pytest.raises(RamifyError, match=r"'shape.doc' is not the name of a .png, .svg or .pdf file"):
        plot(store, tmp_path / "shape.doc")


def test_placeholders_are_not_among_the_nodes(tmp_path, monkeypatch):
    """The counts of all measures and of the figure are those of the build, which says how many placeholders there are."""
    posts = tmp_path / "posts.csv"
    posts.write_text("id,parent,tree,text\n1,9,a,two words\n2,1,a,word\n3,,b,post\n")
    store = build([posts], "table", tmp_path / "store", policy=Policy(missing_root="placeholder", orphan="root"))
    found = statistics(store)
    assert (found["nodes"], found["placeholders"], store.num_nodes) == (3, 1, 4)
    assert all(found[name]["count"] == 3 for name in ("children", "words", "characters"))
    assert found["nodes_per_tree"]["mean"] == 1.5
    titles = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda figure, text, **style: titles.append(text))
    plot(store, tmp_path / "shape.png")
    assert titles == ["store: 2 trees, 3 nodes, 1 placeholder"]
