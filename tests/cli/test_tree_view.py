from ramify import Node, Tree
from ramify.cli.tree_view import draw, outline

TREE = Tree(
    (
        Node("the post\nof two lines", author="ann"),
        Node("first", parents=(0,), author="bob"),
        Node("to the first", parents=(1,)),
        Node("second " * 20, parents=(0,), author="cy"),
        Node("", kind="placeholder"),
        Node("two parents", parents=(2, 3), id="x", author="di"),
    )
)


def test_draw():
    assert list(draw(TREE, width=40)) == [
        "ann: the post of two lines",
        "├─ bob: first",
        "│  └─ (unknown): to the first",
        "│     └─ di ↖3: two parents",
        "└─ cy: second second second second seco…",
        "(placeholder)",
    ]


def test_drawing_of_a_part():
    assert list(draw(TREE, max_nodes=2))[2:] == ["… 4 more nodes"]


def test_deep_trees_stay_on_the_page():
    chain = Tree(tuple(Node("x", parents=(place - 1,) if place else ()) for place in range(5_000)))
    lines = list(draw(chain, width=100))
    assert len(lines) == 5_000
    assert max(map(len, lines)) <= 100
    assert lines[-1].strip() == "… 4999: (unknown): x"


def test_front_matter_is_named():
    nodes = [
        Node(kind="document", label="The Kiln"),
        Node(kind="chapter", parents=(0,)),
        Node("For Bo.", (1,), kind="paragraph"),
    ]
    nodes += [Node(kind="chapter", parents=(0,), label="I"), Node("Clay.", (3,), kind="paragraph")]
    assert list(outline(Tree(tuple(nodes)))) == [
        "2 chapters, 2 paragraphs", "(front matter, a chapter without a title)  1 paragraph", "I  1 paragraph",
    ]  # fmt: skip
    untitled = Tree(tuple(nodes[:3]))
    assert list(outline(untitled))[1] == "(chapter)  1 paragraph"
