"""Joining posts into trees: each policy alone, and all policies against a reference implementation with dictionaries."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import parent_arrays
from ramify.dataset import Policy, build
from ramify.disentangle.data.reply_trees import sort_by_time


def post(id, parent, tree="t", text=None, time=None, **more):
    return {"id": id, "parent": parent, "tree": tree, "text": f"text of {id}" if text is None else text, "time": time, **more}


def store_of(folder, posts, memory=64 << 20, **policies):
    path = folder / "posts.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in posts))
    return build([path], "table", folder / "store", policy=Policy(**policies), memory=memory, overwrite=True)


def store_of_lines(folder, posts, **policies):
    """The same posts as JSON lines of trees."""
    trees = {}
    for each in posts:
        trees.setdefault(each["tree"], []).append({name: value for name, value in each.items() if name != "tree"})
    path = folder / "trees.jsonl"
    path.write_text("".join(json.dumps({"id": name, "nodes": nodes}) + "\n" for name, nodes in trees.items()))
    return build([path], "jsonl", folder / "store", policy=Policy(**policies), overwrite=True)


def shape(store):
    """Tree id -> [(node id, parent id)] in the order of the store."""
    return {
        tree.id: [(node.id, tree.nodes[node.parents[0]].id if node.parents else None) for node in tree.nodes]
        for tree in store.trees()
    }


def counts(store):
    info = store.info
    assert info["read"] == info["nodes"] + sum(info["skipped"].values())
    assert info["nodes"] + info["placeholders"] == store.num_nodes
    return info["skipped"], {reason: count for reason, count in info["kept"].items() if count}


ROOTED = [post("r", None), post("a", "r"), post("b", "a"), post("c", "b")]


def test_order_of_a_tree(tmp_path):
    """Nodes are sorted by time but follow their parents; at equal times they keep the order of the input."""
    posts = [
        post("late", "r", time=50),
        post("child", "late", time=10),
        post("first", "r", time=20),
        post("tie", "r", time=20),
        post("r", None, time=15),
        post("timeless", "first"),
    ]
    assert [node for node, _ in shape(store_of(tmp_path, posts))["t"]] == ["r", "first", "tie", "timeless", "late", "child"]


def test_posts_without_times_keep_their_order(tmp_path):
    posts = [post("b", "a"), post("r", None), post("a", "r"), post("c", "r")]
    assert [node for node, _ in shape(store_of(tmp_path, posts))["t"]] == ["r", "a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[deleted]", "deleted"), ("[removed]", "removed"), ("[ Removed by Reddit ]", "removed"), ("", "empty"), (" \n", "empty")],
)
def test_deleted_and_empty_posts(tmp_path, text, reason):
    posts = [*ROOTED[:2], post("b", "a", text=text), *ROOTED[3:]]
    case = "empty" if reason == "empty" else "deleted"
    store = store_of(tmp_path, posts)
    assert shape(store) == {"t": [("r", None), ("a", "r"), ("c", "a")]}
    assert counts(store) == ({reason: 1}, {"reattached": 1})
    store = store_of(tmp_path, posts, **{case: "drop"})
    assert shape(store) == {"t": [("r", None), ("a", "r")]}
    assert counts(store) == ({reason: 2}, {})
    store = store_of(tmp_path, posts, **{case: "keep"})
    assert store.texts([store.find("b")]) == [text]
    assert counts(store) == ({}, {})


def test_deleted_root_stays_for_its_descendants(tmp_path):
    posts = [
        post("r", None, text="[deleted]", author="ann"),
        post("a", "r", text="[removed]"),
        post("b", "a"),
        post("x", None, "u", ""),
    ]
    store = store_of(tmp_path, posts)
    tree = store.tree(0)
    assert [(node.id, node.kind, node.text, node.author) for node in tree.nodes] == [
        ("r", "emptied", "", "ann"),
        ("b", "", "text of b", None),
    ]
    assert counts(store) == ({"removed": 1, "empty": 1}, {"reattached": 1, "emptied_roots": 1})


def test_orphans(tmp_path):
    posts = [*ROOTED, post("o", "gone"), post("below", "o")]
    store = store_of(tmp_path, posts)
    assert shape(store)["t"][-2:] == [("o", "r"), ("below", "o")]
    assert counts(store) == ({}, {"orphan": 1})
    assert store.info["examples"] == {"orphan": ["tree t, post o"]}
    assert counts(store_of(tmp_path, posts, orphan="drop")) == ({"orphan": 2}, {})


def test_parent_in_another_tree_is_missing(tmp_path):
    posts = [*ROOTED, post("s", None, "u"), post("o", "a", "u")]
    assert shape(store_of(tmp_path, posts))["u"] == [("s", None), ("o", "s")]


def test_cycles(tmp_path):
    posts = [*ROOTED[:2], post("x", "y"), post("y", "z"), post("z", "x"), post("below", "y")]
    store = store_of(tmp_path, posts)
    assert shape(store) == {"t": [("r", None), ("a", "r")]}
    assert counts(store) == ({"cycle": 4}, {})
    store = store_of(tmp_path, posts, cycle="root")
    assert sorted(shape(store)["t"][2:]) == [("below", "y"), ("x", "r"), ("y", "z"), ("z", "x")]
    assert counts(store) == ({}, {"cycle": 1})


@pytest.mark.parametrize("read_as", [store_of, store_of_lines])
def test_own_parents_are_roots(tmp_path, read_as):
    store = read_as(tmp_path, [post("r", "r"), post("a", "r"), post("b", "gone"), post("s", "s", "u"), post("c", "s", "u")])
    assert shape(store) == {"t": [("r", None), ("a", "r"), ("b", "r")], "u": [("s", None), ("c", "s")]}
    assert counts(store) == ({}, {"own_parent": 2, "orphan": 1})


def test_placeholder_root_takes_an_unused_id(tmp_path):
    store = store_of(tmp_path, [post("t", "gone"), post("b", "t"), post("t/root", "b")])
    assert shape(store) == {"t": [("t/root/root", None), ("t", "t/root/root"), ("b", "t"), ("t/root", "b")]}


def test_duplicate_ids(tmp_path):
    posts = [*ROOTED, post("b", "r", text="again"), post("b", None, "u", text="the id of another tree")]
    store = store_of(tmp_path, posts)
    assert store.texts([store.find("b", "t")]) == ["text of b"]
    assert shape(store)["t"] == [("r", None), ("a", "r"), ("b", "a"), ("c", "b")]
    assert counts(store) == ({"duplicate_id": 1}, {})
    store = store_of(tmp_path, posts, duplicate_id="last")
    assert store.texts([store.find("b", "t")]) == ["again"]
    assert dict(shape(store)["t"])["c"] == "b"


def test_two_roots(tmp_path):
    posts = [*ROOTED, post("s", None), post("d", "s"), post("o", "gone")]
    store = store_of(tmp_path, posts)
    assert shape(store) == {
        "t": [("r", None), ("a", "r"), ("b", "a"), ("c", "b"), ("o", "r")],
        "t/s": [("s", None), ("d", "s")],
    }
    assert counts(store) == ({}, {"orphan": 1, "split_roots": 1})
    assert counts(store_of(tmp_path, posts, two_roots="first")) == ({"two_roots": 2}, {"orphan": 1})
    forest = store_of(tmp_path, posts, two_roots="forest")
    assert (forest.num_trees, forest.num_nodes) == (1, 7)
    assert counts(forest) == ({}, {"orphan": 1})


def test_missing_roots(tmp_path):
    """A post whose parent is the tree's id is a child of the missing root, not an orphan."""
    posts = [post("a", "t"), post("b", "a"), post("o", "gone"), *(each | {"tree": "u"} for each in ROOTED)]
    store = store_of(tmp_path, posts)
    assert shape(store)["t"] == [("t", None), ("a", "t"), ("b", "a"), ("o", "t")]
    assert store.tree(store.find_tree("t")).nodes[0].kind == "placeholder"
    assert counts(store) == ({}, {"orphan": 1, "placeholder_roots": 1})
    store = store_of(tmp_path, posts, missing_root="drop")
    assert (store.num_trees, counts(store)) == (1, ({"missing_root": 3}, {}))


def test_chain_of_100_000(tmp_path):
    length = 100_000
    posts = [post(str(number), str(number - 1) if number else None, text="x") for number in range(length)]
    store = store_of(tmp_path, reversed(posts))
    assert store.depth.tolist() == list(range(length))
    assert store.parent.tolist() == list(range(-1, length - 1))


def test_50_000_children_of_one_node(tmp_path):
    store = store_of(tmp_path, [post("r", None), *(post(str(number), "r", text="x") for number in range(50_000))])
    assert (store.num_trees, store.num_nodes, int(store.parent.max())) == (1, 50_001, 0)


def reference_build(posts, policy):
    """A simple reference for {tree: {node: parent}}. Deleted posts are included if the policies keep them."""
    known = {}
    posts = [each | {"parent": None if each["parent"] == each["id"] else each["parent"]} for each in posts]
    for each in posts if policy.duplicate_id == "first" else reversed(posts):
        known.setdefault((each["tree"], each["id"]), each)
    kept_order = [each for each in posts if known[each["tree"], each["id"]] is each]
    trees = {}
    for each in kept_order:
        trees.setdefault(each["tree"], []).append(each)
    result = {}
    for name, members in trees.items():
        ids = {each["id"]: each for each in members}
        root = next((each["id"] for each in members if each["parent"] is None), None)
        if root is None and policy.missing_root == "drop":
            continue
        top = root or name
        parent = {}
        for each in members:
            above = each["parent"]
            if above is not None and above not in ids:
                above = top if above == name or policy.orphan == "root" else "dropped"
            parent[each["id"]] = above
        if policy.cycle == "root":
            for each in members:
                seen, node = [], each["id"]
                while node in parent and node not in seen:
                    seen.append(node)
                    node = parent[node]
                if node in seen:
                    ring = seen[seen.index(node) :]
                    parent[min(ring, key=lambda id: members.index(ids[id]))] = top

        def path(node, parent=parent):
            """The ancestors up to a root, or None if the node does not reach one."""
            above = []
            while (node := parent.get(node)) is not None:
                if node == "dropped" or node in above:
                    return None
                above.append(node)
            return above

        mute = {each["id"] for each in members if each["text"] in ("", "[deleted]")}
        if policy.empty == "keep":
            mute -= {each["id"] for each in members if each["text"] == ""}
        if policy.deleted == "keep":
            mute -= {each["id"] for each in members if each["text"] == "[deleted]"}
        stays, doomed = {}, set()
        for each in members:
            above = path(each["id"])
            if above is None:
                continue
            first = above[-1] if above else each["id"]
            if first != top and policy.two_roots == "first":
                continue
            handled = {"": policy.empty, "[deleted]": policy.deleted}
            tree = name if first == top or policy.two_roots == "forest" else f"{name}/{first}"
            if handled.get(each["text"]) == "tree":
                doomed.add(tree)
            if any(
                ids[node]["text"] in handled and handled[ids[node]["text"]] == "drop"
                for node in [each["id"], *above]
                if node in ids
            ):
                continue
            stays[each["id"]] = (above, first, tree)
        for node, (above, first, tree) in stays.items():
            if node in mute or tree in doomed:
                continue
            living = next((each for each in above if each not in mute), first)
            result.setdefault(tree, {})
            if node != first:
                result[tree][node] = living
            result[tree][first] = None
    return result


IDS = st.sampled_from("abcdefgh")
POST = st.builds(
    post,
    IDS,
    st.one_of(st.none(), st.sampled_from("abcdefghtu")),
    st.sampled_from("tu"),
    st.sampled_from(["words", "words", "words", "", "[deleted]"]),
    st.one_of(st.none(), st.integers(0, 5)),
)
POLICY = st.builds(
    Policy,
    deleted=st.sampled_from(["reattach", "keep", "drop", "tree"]),
    empty=st.sampled_from(["reattach", "keep", "drop", "tree"]),
    orphan=st.sampled_from(["root", "drop"]),
    cycle=st.sampled_from(["drop", "root"]),
    duplicate_id=st.sampled_from(["first", "last"]),
    two_roots=st.sampled_from(["split", "first", "forest"]),
    missing_root=st.sampled_from(["placeholder", "drop"]),
)


@pytest.mark.parametrize("read_as", [store_of, store_of_lines])
@settings(max_examples=100, deadline=None)
@given(posts=st.lists(POST, max_size=14), policy=POLICY)
def test_any_posts_under_any_policy(tmp_path_factory, read_as, posts, policy):
    folder = tmp_path_factory.mktemp("any")
    expected = reference_build(posts, policy)
    # One valid tree, so that the build never fails for lack of trees.
    store = read_as(folder, [*posts, post("r", None, "always")], **vars(policy))
    found = {name: dict(nodes) for name, nodes in shape(store).items() if name != "always"}
    assert found == expected
    counts(store)
    for tree in store.trees():
        times = [node.time for node in tree.nodes]
        assert all(parent < child for child, node in enumerate(tree.nodes) for parent in node.parents), times


@given(parent_arrays(max_comments=20), st.data())
def test_joined_posts_are_already_in_order(tmp_path_factory, parent, data):
    folder = tmp_path_factory.mktemp("posts")
    order = data.draw(st.permutations(range(len(parent))))
    times = [data.draw(st.sampled_from(["", "1", "2", "3"])) for _ in parent]
    rows = [f"n{each},{'' if parent[each] < 0 else f'n{parent[each]}'},t,{times[each]},words" for each in order]
    (folder / "posts.csv").write_text("\n".join(["id,parent,tree,time,text", *rows]))
    store = build([folder / "posts.csv"], "table", folder / "store")
    assert store.structure in ("replies", "texts")
    tree = store.tree(0)
    assert sort_by_time(tree) == tree
