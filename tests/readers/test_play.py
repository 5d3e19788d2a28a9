import zipfile

import pytest

from ramify import dataset, readers
from ramify.errors import RamifyError
from ramify.readers import play
from ramify.readers.base import ReadCounts

PLAY = """<?xml version="1.0"?>
<!DOCTYPE PLAY SYSTEM "play.dtd">
<PLAY>
<TITLE>The Kiln</TITLE>
<FM><P>Public domain.</P></FM>
<PERSONAE><TITLE>Persons</TITLE><PERSONA>WREN</PERSONA></PERSONAE>
<PROLOGUE><TITLE>PROLOGUE</TITLE><SPEECH><SPEAKER>Chorus</SPEAKER><LINE>A pot,
 a fire.</LINE></SPEECH></PROLOGUE>
<ACT><TITLE>ACT I</TITLE>
<SCENE><TITLE>SCENE I. A yard.</TITLE><STAGEDIR>Enter <B>WREN</B></STAGEDIR>
<SPEECH><SPEAKER>WREN</SPEAKER><LINE>Which clay?</LINE><LINE><STAGEDIR>Aside</STAGEDIR> Or sand?</LINE></SPEECH>
<SPEECH><SPEAKER>IVO</SPEAKER><SPEAKER>UNA</SPEAKER><LINE>Red.</LINE><LINE><STAGEDIR>Exit</STAGEDIR></LINE></SPEECH>
<SPEECH><SPEAKER>IVO</SPEAKER></SPEECH>
</SCENE>
<EPILOGUE><TITLE>EPILOGUE</TITLE><SPEECH><LINE>The end.</LINE></SPEECH></EPILOGUE>
</ACT>
</PLAY>"""


def read(path, *, folder=False):
    counts = ReadCounts()
    trees = list(play.read([path], counts))
    assert counts.read == sum(map(len, trees)) + sum(counts.skipped.values())
    return trees, counts


def test_play(tmp_path):
    (tmp_path / "kiln.xml").write_text(PLAY)
    (tree,), counts = read(tmp_path / "kiln.xml")
    assert tree.id == "kiln"
    assert tree.meta == {"title": "The Kiln"}
    assert [(node.id, node.kind, node.label, node.author, node.text) for node in tree.nodes] == [
        ("0", "document", None, None, ""),
        ("1", "act", "PROLOGUE", None, ""),
        ("1.1", "scene", None, None, ""),
        ("1.1.1", "speech", None, "Chorus", ""),
        ("1.1.1.1", "line", None, "Chorus", "A pot, a fire."),
        ("2", "act", "ACT I", None, ""),
        ("2.1", "scene", "SCENE I. A yard.", None, ""),
        ("2.1.1", "speech", None, "WREN", ""),
        ("2.1.1.1", "line", None, "WREN", "Which clay?"),
        ("2.1.1.2", "line", None, "WREN", "Or sand?"),
        ("2.1.2", "speech", None, "IVO, UNA", ""),
        ("2.1.2.1", "line", None, "IVO, UNA", "Red."),
        ("2.2", "scene", "EPILOGUE", None, ""),
        ("2.2.1", "speech", None, None, ""),
        ("2.2.1.1", "line", None, None, "The end."),
    ]
    assert [tree.nodes[node.parents[0]].id if node.parents else None for node in tree.nodes] == [
        None, "0", "1", "1.1", "1.1.1", "0", "2", "2.1", "2.1.1", "2.1.1", "2.1", "2.1.2", "2", "2.2", "2.2.1"
    ]  # fmt: skip
    assert counts.skipped == {"front_matter": 2, "stage_direction": 3, "empty": 1, "empty_division": 1}
    assert counts.kept == {"missing_level": 1}


def test_a_folder_of_plays_is_built(tmp_path):
    (tmp_path / "kiln.xml").write_text(PLAY)
    (tmp_path / "play.dtd").write_text("<!ELEMENT PLAY (TITLE)>")
    (tmp_path / "other.xml").write_text("<a/>")
    assert readers.detect_format([tmp_path]) == "play"
    assert read(tmp_path)[1].skipped["other_file"] == 2
    store = dataset.build([tmp_path], None, tmp_path / "store")
    assert store.info["structure"] == "document"
    assert store.num_trees == 1


def test_faulty_plays(tmp_path):
    bomb = '<?xml version="1.0"?><!DOCTYPE PLAY [<!ENTITY a "b">]><PLAY><ACT>&a;</ACT></PLAY>'
    for text, says in ((PLAY[:-20], "line "), (bomb, "the definition of the entity 'a' is refused")):
        (tmp_path / "x.xml").write_text(text)
        with pytest.raises(RamifyError, match=says):
            read(tmp_path / "x.xml")
    assert play.refuses(tmp_path / "x", b"<PLAYLIST><ACT></ACT></PLAYLIST>")


@pytest.mark.data
def test_published_plays(data_dir, tmp_path):
    zipfile.ZipFile(data_dir("pang-lee") / "shakespeare.zip").extractall(tmp_path)
    trees, counts = read(tmp_path)
    assert len(trees) == 8
    assert sum(node.kind == "line" for tree in trees for node in tree.nodes) + counts.skipped["empty"] == 24_026
    assert sum(node.kind == "act" for tree in trees for node in tree.nodes) == 40
