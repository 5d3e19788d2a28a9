"""Languages of books: headings of chapters, abbreviations, and where a book says its language."""

import pytest
from books import epub, gutenberg, package, page, read, sentences_of, shape

from ramify.errors import RamifyError
from ramify.readers.book.headings import headings
from ramify.readers.languages import LANGUAGES, code_of
from ramify.readers.sentences import sentences

# Headings of a part, a chapter, another chapter, and something without a number; as books of the language spell them.
HEADINGS = {
    "Catalan": "PRIMERA PART|CAPÍTOL PRIMER|Capítol II|Epíleg",
    "Chinese": "第一部|第一章|第十二回 風雪山神廟|尾聲",
    "Czech": "První díl|KAPITOLA I.|Kapitola druhá|Doslov",
    "Danish": "Første Del|FØRSTE KAPITEL|Kapitel II|Efterskrift",
    "Dutch": "EERSTE DEEL|Eerste hoofdstuk|HOOFDSTUK II.|Nawoord",
    "English": "PART ONE|CHAPTER I. Clay|Chapter the Second|Epilogue",
    "Esperanto": "UNUA PARTO|Ĉapitro unua|ĈAPITRO II|Epilogo",
    "Finnish": "ENSIMMÄINEN OSA|Ensimmäinen luku|II LUKU|Loppusanat",
    "French": "PREMIERE PARTIE|CHAPITRE PREMIER|Chapitre deuxième: le four|ÉPILOGUE",
    "German": "Erster Theil.|ERSTES KAPITEL|2. Kapitel. Der Ofen|Nachwort",
    "Greek": "ΜΕΡΟΣ ΠΡΩΤΟΝ|ΚΕΦΑΛΑΙΟΝ Α΄|Κεφάλαιο δεύτερο|Επίλογος",
    "Hungarian": "ELSŐ RÉSZ|I. fejezet|Második fejezet|Utószó",
    "Italian": "PARTE PRIMA|CAPITOLO PRIMO|Capitolo II. Il forno|Epilogo",
    "Japanese": "第一部|第一章|第二章 窯|終章",
    "Latin": "PARS PRIMA|CAPVT I|Caput secundum|Epilogus",
    "Norwegian": "Første del|FØRSTE KAPITEL|Kapitel 2|Etterord",
    "Polish": "CZĘŚĆ PIERWSZA|ROZDZIAŁ I|Rozdział drugi|Zakończenie",
    "Portuguese": "PRIMEIRA PARTE|CAPITULO PRIMEIRO|Capítulo II|Conclusão",
    "Russian": "ЧАСТЬ ПЕРВАЯ|ГЛАВА I|Глава вторая|Эпилог",
    "Spanish": "PRIMERA PARTE|Capítulo primero. Que trata de barro|CAPITULO II|Epílogo",
    "Swedish": "FÖRRA DELEN|FÖRSTA KAPITLET|Kapitel II|Epilog",
    "Tagalog": "UNANG BAHAGI|KABANATA I|IKALAWANG KABANATA|Wakas",
}


def test_all_languages_are_tried():
    assert {code_of(name) for name in HEADINGS} == set(LANGUAGES)


@pytest.mark.parametrize("language", HEADINGS)
def test_headings_of_project_gutenberg(tmp_path, language):
    part, first, second, last = HEADINGS[language].split("|")
    path = tmp_path / "k.txt"
    text = f"THE KILN, BY ANN\n\n{part}\n\n{first}\n\nabc def.\n\n{second}\n\nabc def.\n\n{last}\n\nabc def."
    path.write_text(gutenberg(language, text), "utf-8")
    (tree,), counts = read(path, levels="part,chapter,paragraph")
    part, first, second, last = (title.rstrip(".") for title in (part, first, second, last))
    assert shape(tree)[1:7] == [
        f" par [{part}]",
        f"  cha [{first}]",
        "   par abc def.",
        f"  cha [{second}]",
        "   par abc def.",
        f"  cha [{last}]",
    ]
    assert counts.skipped == {"licence": 2, "titlepage": 1}


@pytest.mark.parametrize(
    ("language", "kinds"),
    [
        ("fr", {"ACTE III": "act", "Scène première": "scene", "LETTRE XL": "letter", "2e partie": "part", "Livre dix": "book"}),
        (
            "de",
            {
                "Dritter Aufzug": "act",
                "Zweiter Auftritt.": "scene",
                "Zweites Buch": "book",
                "Vorwort zur zweiten Auflage": "foreword",
            },
        ),
        ("it", {"ATTO SECONDO": "act", "Canto primo": "canto", "Prefazione": "preface", "Libro XX": "book"}),
        ("fi", {"KAHDESKYMMENES ENSIMMÄINEN LUKU": "chapter", "Kolmas näytös": "act", "Esipuhe": "preface"}),
        ("sv", {"Nittonde kapitlet": "chapter", "Tredje akten": "act", "Förord": "foreword"}),
    ],
)
def test_kinds_of_headings(language, kinds):
    known = headings(language)
    assert all(map(known.is_heading, kinds))
    assert {title: known.kind_of(title) for title in kinds} == kinds


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("fr", "Première partie de chasse."),
        ("fr", "Deux parties furent jouées."),
        ("fr", "Scène un peu triste."),
        ("de", "Dritter Teil des Weges war schwer."),
        ("de", "Ein Brief kam."),
        ("it", "Parte di loro andò via."),
        ("es", "Parte de la gente."),
        ("nl", "Deel een geheim."),
        ("en", "I act."),
        ("en", "I book a room."),
        ("en", "Preface to nothing was it."),
        ("fr", "Livre le reste."),
        ("en", "CHAPITRE II"),
    ],
)
def test_prose_is_no_heading(language, text):
    assert not headings(language).is_heading(text)


@pytest.mark.parametrize(
    ("language", "titles"),
    [
        ("Finnish", "I LUKU|V LUKU|VI LUKU"),
        ("German", "Vorwort zur zweiten Auflage.|I KAPITEL|II KAPITEL"),
        ("French", "CHAPITRE Ier|Chapitre 2e: la terre|CHAPITRE 3me"),
        ("Spanish", "CAPÍTULO 1º|CAP. II|Cap. III: barro"),
        ("Finnish", "Ensimäinen luku|Toinen luku"),
        ("Latin", "CAPVT PRIMVM|CAPVT SECVNDVM|CAPVT QVARTVM"),
        ("Chinese", "一|二|十二"),
        ("English", "PREFACE|I|II"),
        ("French", "PRÉFACE|I|II|III"),
        ("Polish, French", "Rozdział I|CHAPITRE II"),
    ],
)
def test_chapters_of_project_gutenberg(tmp_path, language, titles):
    path = tmp_path / "k.txt"
    path.write_text(gutenberg(language, "\n\n".join(f"{title}\n\nabc def." for title in titles.split("|"))), "utf-8")
    (tree,), counts = read(path, levels="chapter,paragraph")
    found = [(node.kind, node.label) for node in tree.nodes[1:] if not node.text]
    assert found == [("chapter", title.rstrip(".")) for title in titles.split("|")]
    assert counts.kept == {}


def test_a_language_without_a_row_is_counted(tmp_path):
    path = tmp_path / "k.txt"
    path.write_text(gutenberg("Zulu", "CHAPTER I\n\nabc.\n"), "utf-8")
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert (tree.meta["language"], tree.nodes[1].label) == ("Zulu", "CHAPTER I")
    assert (counts.kept, counts.examples["unknown_language"]) == ({"unknown_language": 1}, [f"{path}: zulu"])


def test_a_heading_with_a_long_title(tmp_path):
    """As in Don Quixote, whose titles are summaries. Without a full stop behind the number, a long text is no heading."""
    title, prose = f"Capítulo II. Que trata {'del barro ' * 12}rojo", f"Capítulo II {'del barro ' * 12}rojo."
    path = tmp_path / "k.txt"
    path.write_text(gutenberg("Spanish", f"Capítulo I.\n\nUno.\n\n{title}\n\nDos.\n\n{prose}\n"), "utf-8")
    (tree,), _ = read(path, levels="chapter,paragraph")
    assert [node.label for node in tree.nodes if node.kind == "chapter"] == ["Capítulo I", title]
    assert sentences_of(tree) == ["Uno.", "Dos.", prose]


def test_a_table_of_contents_and_notes_in_the_language(tmp_path):
    text = (
        "TABLE DES MATIÈRES\n\n CHAPITRE I. La terre\n CHAPITRE II. Le feu\n\nCHAPITRE I\n\nLA TERRE\n\nSèche.[1]\n\n"
        "[Note 1: Très.]\n\n[Gravure: four]\n\nCHAPITRE II\n\nChaud."
    )
    path = tmp_path / "k.txt"
    path.write_text(gutenberg("French", text), "utf-8")
    (tree,), counts = read(path, levels="chapter,paragraph")
    assert shape(tree)[1:] == [" cha [CHAPITRE I: LA TERRE]", "  par Sèche.", " cha [CHAPITRE II]", "  par Chaud."]
    assert counts.skipped == {"licence": 2, "contents": 1, "footnote": 1, "picture": 1}


# --- abbreviations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("ca", "Mn. Puig parla."),
        ("da", "Dér stod bl.a. Berg."),
        ("de", "Da kam Frl. Rosa."),
        ("el", "Ο Αγ. Νικόλαος ήρθε."),
        ("en", "Then Lieut. Oak came."),
        ("eo", "Venis S-ro. Elm."),
        ("es", "D. Quijote vio a Dña. Rosa."),
        ("fi", "Hra. Virtanen tuli."),
        ("fr", "M. Roux, Mme. Roux et J. Verne vinrent."),
        ("fr", "« Mlle. Rose » vint."),
        ("hu", "Szt. István jött."),
        ("it", "S. Pietro e A. Manzoni."),
        ("la", "Cn. Pompeius venit."),
        ("nl", "Ds. Jansen sprak."),
        ("no", "Da kom Frk. Berg."),
        ("pl", "Wtedy ks. Nowak i św. Jan."),
        ("pt", "O Snr. Lopes veio."),
        ("ru", "Тут кн. Андрей вошёл."),
        ("sv", "S:t. Erik kom."),
        ("tl", "Gng. Cruz."),
        ("sv", "Hon såg t. ex. Lund."),
        ("da", "Der stod bl. a. Berg."),
        ("de", "Im 19. Jahrhundert kam das 3. Regiment, dann der 4. und 5. Mann."),
        ("no", "Det 2. Kompani kom."),
        ("hu", "Az 5. Ezred jött."),
        ("fr", "Voir le t. II, le n. 5 et le vol. 3."),
        ("pt", "Veja o no. 4, vol. II."),
        ("en", "See vol. II of it."),
    ],
)
def test_abbreviations_end_no_sentence(language, text):
    assert sentences(text, language) == [text]
    following = f"{text[:-1]}! {text}"
    assert sentences(following, language) == [f"{text[:-1]}!", text]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("de", "Er war zwischen 20 und 30.|Sie lachte."),
        ("de", "Es wurden 18.|Das war viel."),
        ("fr", "Elle dit non.|5 hommes vinrent."),
        ("fr", "Il en vit 3.|Puis il dormit."),
        ("en", "It was the 4.|He wept."),
        ("en", "He read the vol.|I slept."),
    ],
)
def test_numbers_and_words_end_sentences(language, text):
    assert sentences(text.replace("|", " "), language) == text.split("|")


# --- the language of a book -----------------------------------------------------------------------------------------------

TEXT = "M. Roux parla."
TEI = (
    '<TEI xmlns="http://www.tei-c.org/ns/1.0"{}><teiHeader><profileDesc>{}</profileDesc></teiHeader><text{}><body><p>'
    f"{TEXT}</p></body></text></TEI>"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("k.txt", gutenberg("French", TEXT)),
        ("k.html", f'<html xml:lang="fr-CA"><body><p>{TEXT}</p></body></html>'),
        ("k.html", f'<html><meta name="dcterms.language" content="fr"><body><p>{TEXT}</p></body></html>'),
        ("k.html", f'<html><meta http-equiv="Content-Language" content="fr"><body><p>{TEXT}</p></body></html>'),
        ("k.md", f"---\nlang: fr-FR\n---\n{TEXT}\n"),
        ("k.xml", TEI.format("", '<langUsage><language ident="fra"/></langUsage>', "")),
        ("k.xml", TEI.format(' xml:lang="en"', "", ' xml:lang="fr"')),
        ("k.xml", TEI.format("", "", ' lang="fre"')),
        ("k.epub", "fre"),
    ],
)
def test_books_say_their_language(tmp_path, name, content):
    path = tmp_path / name
    if name == "k.epub":
        pages = {"a.xhtml": page(f"<h2>CHAPITRE I</h2><p>{TEXT}</p>")}
        epub(path, pages, package(pages, language=content))
    else:
        path.write_text(content, "utf-8")
    (tree,), _ = read(path)
    assert sentences_of(tree) == [TEXT]
    assert code_of(tree.meta["language"]) == "fr"


def test_the_option_replaces_the_language(tmp_path):
    path = tmp_path / "k.txt"
    path.write_text("CHAPITRE I\n\nMme. Roux parla.\n\nCHAPITRE II\n\nOui.\n")
    for language in ("fr", "French"):
        (tree,), _ = read(path, language=language)
        assert tree.meta["language"] == "fr"
        assert [node.label for node in tree.nodes if node.kind == "chapter"] == ["CHAPITRE I", "CHAPITRE II"]
        assert sentences_of(tree) == ["Mme. Roux parla.", "Oui."]
    assert sentences_of(read(path)[0][0])[0] == "CHAPITRE I"
    with pytest.raises(
        RamifyError, match=r"the option language='Frensh' is invalid\. Expected the name or the code of a language"
    ):
        read(path, language="Frensh")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "en"),
        ("en_GB", "en"),
        ("English, French", "en"),
        ("deu", "de"),
        ("Norwegian Bokmål", "no"),
        ("nb-NO", "no"),
        ("Zulu", "zulu"),
        ("Low German; German", "de"),
    ],
)
def test_codes_of_languages(name, code):
    assert code_of(name) == code
