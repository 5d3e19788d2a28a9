"""The words of a language that readers of books know: its names, the words of its headings, and its abbreviations.

The words of headings are regular expressions without accents, because capital letters often lack them (`unaccented`).
"""

import re
import unicodedata
from functools import cache
from typing import NamedTuple

ENGLISH = "en"


class Language(NamedTuple):
    """`names` are the names and three-letter codes that files give. The field of a kind of division holds its words."""

    names: str
    ordinals: str = r"(?!)"
    """Numbers that may stand before the word of a division, or behind it."""
    cardinals: str = r"(?!)"
    """Numbers that stand behind it."""
    abbreviations: str = ""
    """Words with a full stop that end no sentence, as far as sentencex lacks them."""
    before_ordinals: str = r"(?!)"
    """Words before a number with a full stop that is an ordinal: "im 18. Jahrhundert"."""
    volume: str = r"(?!)"
    book: str = r"(?!)"
    part: str = r"(?!)"
    act: str = r"(?!)"
    chapter: str = r"(?!)"
    scene: str = r"(?!)"
    letter: str = r"(?!)"
    canto: str = r"(?!)"
    stave: str = r"(?!)"
    section: str = r"(?!)"
    prologue: str = r"(?!)"
    epilogue: str = r"(?!)"
    preface: str = r"(?!)"
    foreword: str = r"(?!)"
    introduction: str = r"(?!)"
    conclusion: str = r"(?!)"
    afterword: str = r"(?!)"
    appendix: str = r"(?!)"
    dedication: str = r"(?!)"
    postscript: str = r"(?!)"
    contents: str = r"(?!)"
    note: str = r"(?!)"
    picture: str = r"(?!)"


NUMBERED = ("volume", "book", "part", "act", "chapter", "scene", "letter", "canto", "stave")
"""Kinds of divisions that a heading numbers."""
UNNUMBERED = (
    *("prologue", "epilogue", "preface", "foreword", "introduction", "conclusion", "afterword", "appendix", "dedication"),
    "postscript",
)
"""Kinds of divisions that a heading names alone."""

_HAN_NUMBER = r"第 ?[一二三四五六七八九十百千零〇○两兩廿卅\d]+ ?"
_NORDIC_TEENS = r"\w+t[eo]nde|\w+ty[vf]ende|\w+tionde|\w+onde"

LANGUAGES: dict[str, Language] = {
    "ca": Language(
        "catalan cat",
        r"primer[ao]?|segona?|tercera?|quarta?|(?:cinqu|sis|set|vuit|nov|des|\w+z)e(?:na)?|darrera?",
        "u|dos|tres|quatre|cinc|sis|set|vuit|nou|deu",
        "Sr Sra Srta Dr Dra Mn St Sta Sto Fr pàg cap",
        volume="volum|tom", book="llibre", part="part", act="acte", chapter="capitol", scene="escena", letter="carta|lletra",
        canto="cant", prologue="proleg", epilogue="epileg", preface="prefaci", introduction="introduccio",
        conclusion="conclusio", appendix="apendix", dedication="dedicatoria", contents="index|taula", note="nota",
        picture="il·lustracio",
    ),
    "cs": Language(
        "czech cze ces čeština",
        r"prvni|druh[aey]|treti|ctvrt[aey]|(?:pat|sest|sedm|osm|devat|desat|\w+act|\w+cat)[aey]|posledni",
        "jedna|dve|tri|ctyri|pet",
        volume="svazek", book="kniha", part="cast|dil", act="jednani|dejstvi|akt", chapter="kapitola|hlava",
        scene="vystup|scena", letter="list|dopis", canto="zpev", prologue="prolog", epilogue="epilog", preface="predmluva",
        introduction="uvod", conclusion="zaver", afterword="doslov", appendix="dodatek|priloha", dedication="venovani",
        contents="obsah", note="poznamka",
    ),
    "da": Language(
        "danish dan dansk",
        rf"forste|anden|andet|tredi?je|fjerde|femte|sjette|syvende|ottende|niende|tiende|el?levte|tolvte|{_NORDIC_TEENS}|sidste",
        "to|tre|fire|fem|seks|syv|otte|ni|ti",
        "Hr Fr Frk Fru Dr Prof Past Kapt Kaptn Sct Skt St bl.a kl Kgl Nr",
        before_ordinals=r"den|det|de|d\.",
        volume="bind", book="bog", part="del|afdeling", act="akt|handling", chapter="kapit(?:t?el|let)|kap|capitel",
        scene="scene|optrin", letter="brev", canto="sang", prologue="prolog", epilogue="epilog", preface="fortale|forord",
        introduction="indledning", conclusion="slutning", afterword="efterskrift", appendix="tillæg", dedication="tilegnelse",
        contents="indhold(?:sfortegnelse)?", note="fodnote|note", picture="illustration",
    ),
    "de": Language(
        "german ger deu deutsch",
        r"(?:erst|zweit|dritt|viert|funft|sechst|siebent?|acht|neunt|zehnt|elft|eilft|zwolft|\w+zehnt|\w+[sz]igst|letzt)e[rsn]?",
        "eins|zwei|drei|vier|funf|sechs|sieben|acht|neun|zehn|elf|zwolf",
        "Hr Hrn Frl Fr Dr Prof St hl Ew kgl Bd Bde geb Nr Sr Frhr Frh Hptm Lt vgl Kap Abt",
        before_ordinals=r"d(?:er|ie|as|e[mns])|[ai]m|zu[mr]|vom|beim|ins|\d{1,2}\. (?:und|bis)",
        volume="band", book="buch", part="th?eil", act="akt|act|aufzug", chapter="[kc]apitt?el", scene="auftritt|s[zc]ene",
        letter="brief", canto="gesang", section="abschnitt", prologue="prolog|vorspiel", epilogue="epilog|nachspiel",
        preface="vorrede", foreword="vorwort", introduction="einleitung|einfuhrung", conclusion="schlu(?:ss|ß)",
        afterword="nachwort", appendix="anhang", dedication="widmung|zueignung", contents="inhalt(?:sverzeichni(?:s|ss|ß))?",
        note="fu(?:ss|ß)note|anmerkung", picture="illustration|abbildung",
    ),
    "el": Language(
        "greek gre ell ελληνικά",
        r"(?:πρωτ|δευτερ|τριτ|τεταρτ|πεμπτ|εκτ|εβδομ|ογδο|ενατ|δεκατ|ενδεκατ|δωδεκατ|τελευται)(?:ο[νς]?|η|α)",
        "(?-i:[Α-Ω]{1,3})['΄ʹ´’]?|ενα|δυο|τρια|τεσσερα|πεντε",
        "κ κα κκ Δρ Αγ Καθ Σεβ δηλ",
        volume="τομος", book="βιβλιον?", part="μερος", act="πραξ(?:η|ις)", chapter="κεφαλαιον?", scene="σκηνη",
        letter="επιστολη|γραμμα", canto="ραψωδια|ασμα", prologue="προλογος", epilogue="επιλογος", introduction="εισαγωγη",
        conclusion="συμπερασμα", appendix="παραρτημα", dedication="αφιερωση|αφιερωσις",
        contents="περιεχομενα|πιναξ περιεχομενων", note="σημειωση|υποσημειωση", picture="εικονα",
    ),
    ENGLISH: Language(
        "english eng",
        "first|second|third|fourth|fifth|sixth|seventh|last|final",
        "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen"
        "|nineteen|twenty",
        "Lieut Mdlle Sergt Corpl",
        volume="volume", book="book", part="part", act="act", chapter="chapter", scene="scene", letter="letter", canto="canto",
        stave="stave", section="section", prologue="prologue", epilogue="epilogue", preface="preface", foreword="foreword",
        introduction="introduction", conclusion="conclusion", afterword="afterword", appendix="appendix",
        dedication="dedication", postscript="postscript", contents="(?:table of )?contents", note="footnote",
        picture="illustration|frontispiece",
    ),
    "eo": Language(
        "esperanto epo",
        r"(?:unu|du|tri|kvar|kvin|ses|sep|ok|nau|\w*dek(?:[ -]?\w+)?|last)a",
        "unu|du|tri|kvar|kvin|ses|sep|ok|nau|dek",
        "S-ro S-ino F-ino D-ro s-ro s-ino f-ino d-ro Prof ekz",
        volume="volumo", book="libro", part="parto", act="akto", chapter="capitro", scene="sceno", letter="letero",
        canto="kanto", prologue="prologo", epilogue="epilogo", preface="antauparolo", introduction="enkonduko",
        conclusion="konkludo", afterword="postparolo", appendix="aldono", dedication="dedico", contents="enhavo",
        note="piednoto|noto", picture="ilustrajo",
    ),
    "es": Language(
        "spanish spa español castellano castilian",
        r"primer[oa]?|segund[oa]|tercer[oa]?|cuart[oa]|quint[oa]|sext[oa]|sep?tim[oa]|octav[oa]|noven[oa]|ultim[oa]"
        r"|(?:un|duo)?decim[oa](?: ?\w+[oa])?|(?:vi|tri)gesim[oa](?: \w+[oa])?",
        "uno|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce",
        "Dn Dña Sr Sra Srta Dr Dra Exmo Exma Excmo Excma Ilmo Illmo Vm Vmd Vd Sto Sta Fr Gral pág cap",
        volume="tomo|volumen", book="libro", part="parte", act="acto|jornada", chapter="capitulo|cap", scene="escena",
        letter="carta", canto="canto", prologue="prologo", epilogue="epilogo", preface="prefacio|advertencia",
        introduction="introduccion", conclusion="conclusion", appendix="apendice", dedication="dedicatoria",
        postscript="posdata", contents="indice", note="nota", picture="ilustracion",
    ),
    "fi": Language(
        "finnish fin suomi",
        r"\w+skymmenes ?\w*|ensimm?ainen|toinen|kolmas|neljas|viides|kuudes|seitsemas|kahdeksas|yhdeksas"
        r"|kymmenes|\w+toista|viimeinen",
        "yksi|kaksi|kolme|nelja|viisi|kuusi|seitseman|kahdeksan|yhdeksan|kymmenen",
        "hra hrat tri toht rva nti past maist kapt prof esim",
        volume="nide|nidos", book="kirja", part="osa|osasto", act="naytos", chapter="luku", scene="kohtaus", letter="kirje",
        canto="runo|laulu", prologue="prologi|alkunaytos", epilogue="epilogi|loppunaytos", preface="esipuhe|alkulause",
        foreword="alkusanat|esisana", introduction="johdanto", conclusion="loppu(?:lause|sanat)?", afterword="jalkisanat",
        appendix="liite", dedication="omistus", contents="sisal(?:lys(?:luettelo)?|to)", note="alaviite|viite|muistutus",
        picture="kuva",
    ),
    "fr": Language(
        "french fre fra français francais",
        r"premiere?|seconde?|[a-z-]+ieme|derniere?",
        r"un(?=[.:]|$)|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze",
        "MM Mme Mmes Mlle Mlles Mgr Dr Drs Me Pr St Ste Vve Vte Cte chap av.J.-C",
        volume="tome|volume", book="livre", part="partie", act="acte", chapter="chapitre|chap", scene="scene|tableau",
        letter="lettre", canto="chant", section="section", prologue="prologue", epilogue="epilogue",
        preface="preface|avertissement", foreword="avant-propos", introduction="introduction", conclusion="conclusion",
        afterword="postface", appendix="appendice|annexe", dedication="dedicace", postscript="post-scriptum",
        contents="table(?: des (?:matieres|chapitres))?|sommaire", note="note", picture="illustration|gravure",
    ),
    "hu": Language(
        "hungarian hun magyar",
        r"elso|utolso|\w+dik",
        "ketto|harom|negy|ot",
        "dr Dr ifj özv id gr br szt ún prof",
        before_ordinals="az?",
        volume="kotet", book="konyv", part="resz", act="felvonas", chapter="fejezet", scene="jelenet|szin", letter="level",
        canto="enek", prologue="prologus|elohang", epilogue="epilogus|utohang", preface="eloszo",
        introduction="bevezetes|bevezeto", conclusion="befejezes", afterword="utoszo", appendix="fuggelek",
        dedication="ajanlas", contents="tartalom", note="labjegyzet|jegyzet", picture="illusztracio|kep",
    ),
    "it": Language(
        "italian ita italiano",
        r"prim[oa]|second[oa]|terz[oa]|quart[oa]|quint[oa]|sest[oa]|settim[oa]|ottav[oa]|non[oa]|ultim[oa]"
        r"|(?:un|duo)?decim[oa](?: ?\w+[oa])?|\w+esim[oa]",
        "uno|due|tre|quattro|cinque|sei|sette|otto|nove|dieci",
        "sig sigg dott prof avv ing on mons cav comm pag cap Ill.mo Ecc.mo",
        volume="tomo|volume", book="libro", part="parte", act="atto", chapter="capitolo|capo|cap", scene="scena",
        letter="lettera", canto="canto", prologue="prologo", epilogue="epilogo", preface="prefazione|avvertenza",
        foreword="premessa", introduction="introduzione", conclusion="conclusione", afterword="postfazione",
        appendix="appendice", dedication="dedica", contents="indice", note="nota", picture="illustrazione",
    ),
    "ja": Language(
        "japanese jpn 日本語",
        _HAN_NUMBER,
        volume="巻|卷", book="篇|編", part="部", act="幕", chapter="章|回|話", scene="場", section="節",
        prologue="序章|プロローグ", epilogue="終章|エピローグ", preface="序文?|はしがき|まえがき", afterword="あとがき|跋",
        introduction="序論", conclusion="結論", appendix="附録|付録", contents="目次", note="注|註",
    ),
    "la": Language(
        "latin lat",
        r"(?:prim|sec[uv]nd|terti|q[uv]art|q[uv]int|sext|septim|octav|non|(?:[uv]n|d[uv]o)?decim|\w+esim|[uv]ltim)(?:[uv]s|a|[uv]m)",
        abbreviations="Cn Sex Ti Ser Sp Mam App Kal Imp Cos cap lib", volume="tom[uv]s|vol[uv]men", book="liber", part="pars",
        act="act[uv]s", chapter="cap[uv]t|capitulum", scene="sc[a]?ena|scæna", letter="epist[uo]la", canto="carmen|canticum",
        prologue="prologus|prooemium", epilogue="epilogus", preface="pr(?:ae|æ)fatio", introduction="introductio",
        conclusion="conclusio", appendix="appendix", dedication="dedicatio", contents="index", note="nota",
    ),
    "nl": Language(
        "dutch dut nld nederlands",
        r"eerste|tweede|derde|vierde|vijfde|zesde|zevende|achtste|negende|tiende|elfde|twaalfde|\w+tiende|\w+tigste|laatste",
        r"een(?=[.:]|$)|twee|drie|vier|vijf|zes|zeven|acht|negen|tien",
        "dhr mevr mej juffr ds jhr jkvr St d.w.z o.a bijv",
        volume="boekdeel", book="boek", part="deel|afdeeling|afdeling", act="bedrijf|akte", chapter="hoofdstuk",
        scene="toneel|tooneel|scene", letter="brief", canto="zang", prologue="proloog", epilogue="epiloog",
        preface="voorrede|voorbericht", foreword="voorwoord", introduction="inleiding", conclusion="besluit|slot",
        afterword="nawoord|narede", appendix="bijlage|aanhangsel", dedication="opdracht", contents="inhoud(?:sopgave)?",
        note="voetnoot|noot", picture="illustratie",
    ),
    "no": Language(
        "norwegian nor nob nno norsk nb nn",
        rf"forste|annen|andre|annet|tredje|fjerde|femte|sjette|syvende|sjuende|attende|ottende|niende|tiende|el?levte|tolvte"
        rf"|{_NORDIC_TEENS}|siste|sidste",
        "to|tre|fire|fem|seks|syv|sju|atte|ni|ti",
        "Hr Fr Frk Fru Dr Prof Past Kapt St f.eks bl.a kl Kgl Nr",
        before_ordinals=r"den|det|de|d\.",
        volume="bind", book="bok|bog", part="del", act="akt|handling", chapter="kapit(?:t?el|let)|kap", scene="scene|optrin",
        letter="brev", canto="sang", prologue="prolog", epilogue="epilog", preface="fortale|forord",
        introduction="innledning|indledning", conclusion="slutning", afterword="etterord|efterord", appendix="tillegg",
        dedication="tilegnelse", contents="innhold|indhold", note="fotnote|note", picture="illustrasjon",
    ),
    "pl": Language(
        "polish pol polski",
        r"pierwsz[ya]|drug[ia]|trzecia?|(?:czwart|piat|szost|siodm|osm|dziewiat|dziesiat|\w+nast|\w+dziest)[ya](?: \w+[ya])?"
        "|ostatnia?",
        "jeden|dwa|trzy|cztery|piec",
        "pp p ks dr św hr por kpt płk mjr gen ob im ul al str bp abp tj",
        volume="tom", book="ksiega", part="czesc", act="akt", chapter="rozdział", scene="scena", letter="list", canto="piesn",
        section="oddział", prologue="prolog", epilogue="epilog", preface="przedmowa", foreword="słowo wstepne",
        introduction="wstep", conclusion="zakonczenie", afterword="posłowie", appendix="dodatek|aneks", dedication="dedykacja",
        contents="spis (?:rzeczy|tresci)", note="przypis", picture="ilustracja|rycina",
    ),
    "pt": Language(
        "portuguese por português portugues",
        r"primeir[oa]|segund[oa]|terceir[oa]|quart[oa]|quint[oa]|sext[oa]|sep?tim[oa]|oitav[oa]|non[oa]|ultim[oa]"
        r"|(?:un|duo)?decim[oa](?: ?\w+[oa])?|(?:vi|tri)gesim[oa](?: \w+[oa])?",
        r"um(?=[.:]|$)|dois|tres|quatro|cinco|seis|sete|oito|nove|dez",
        "Sr Sra Snr Snra Dr Dra Exmo Exma Illmo Ilmo Pe Sto Sta Fr pág pag cap",
        volume="tomo|volume", book="livro", part="parte", act="acto|ato|jornada", chapter="capitulo|cap", scene="scena|cena",
        letter="carta", canto="canto", prologue="prologo", epilogue="epilogo", preface="prefacio|advertencia",
        foreword="preambulo", introduction="introduc[cç]ao", conclusion="conclusao", afterword="posfacio",
        appendix="app?endice", dedication="dedicatoria", postscript="post-scriptum", contents="indice", note="nota",
        picture="ill?ustracao",
    ),
    "ru": Language(
        "russian rus русский",
        r"(?:перв|втор|четверт|пят|шест|седьм|восьм|девят|десят|\w+надцат|\w*дцат|последн)(?:ая|яя|ое|ее|ыи|ои|ии)|трет(?:ья|ье|ии)",
        "один|два|три|четыре|пять",
        "св кн гр им ул тов проф акад гл т.е",
        volume="том", book="книга", part="часть", act="деиствие|акт", chapter="глава", scene="сцена|явление", letter="письмо",
        canto="песнь", prologue="пролог", epilogue="эпилог", preface="предисловие", introduction="введение|вступление",
        conclusion="заключение", afterword="послесловие", appendix="приложение", dedication="посвящение",
        contents="содержание|оглавление", note="примечание|сноска", picture="иллюстрация",
    ),
    "sv": Language(
        "swedish swe svenska",
        rf"forsta|forra|andra|senare|tredje|fjarde|femte|sjatte|sjunde|attonde|nionde|tionde|el[fv]te|tol[fv]te|{_NORDIC_TEENS}|sista",
        "tva|tre|fyra|fem|sex|sju|atta|nio|tio",
        "Hr Fr Frk Dr D:r S:t S:ta Prof Kapt t.ex kl sid",
        volume="band", book="bok(?:en)?", part="del(?:en)?|afdelning(?:en)?|avdelning(?:en)?", act="akt(?:en)?",
        chapter="kapit(?:t?el|let)|kap", scene="scen(?:en)?", letter="bref(?:vet)?|brev(?:et)?", canto="sang(?:en)?",
        prologue="prolog", epilogue="epilog", preface="foretal", foreword="forord", introduction="inledning",
        conclusion="slut(?:ord)?", afterword="efterskrift", appendix="bihang|bilaga", dedication="tillagnan",
        contents="innehall(?:sforteckning)?", note="fotnot|not", picture="illustration",
    ),
    "tl": Language(
        "tagalog tgl fil filipino",
        r"unang|ika-?\w+|huling",
        "isa|dalawa|tatlo|apat|lima",
        "Gng Bb Kgg",
        book="aklat", part="bahagi", act="yugto", chapter="kabanata", scene="tagpo|tanawin", letter="liham|sulat",
        canto="awit", preface="paunang salita", introduction="pambungad|panimula", conclusion="wakas",
        contents="talaan ng (?:mga )?nilalaman",
    ),
    "zh": Language(
        "chinese chi zho 中文",
        _HAN_NUMBER,
        volume="卷|冊|册", book="編|编", part="部|篇|輯|辑", act="幕|齣", chapter="章|回|折", scene="場|场", section="節|节",
        letter="信", prologue="楔子|序幕|引子", epilogue="尾聲|尾声", preface="序言?|自序|前言",
        introduction="引言|緒論|绪论|導言|导言", conclusion="結論|结论|結語|结语", afterword="跋|後記|后记",
        appendix="附錄|附录", dedication="題辭|题辞", contents="目錄|目录", note="註釋|注释|註|注",
    ),
}  # fmt: skip


@cache
def codes_of(names: str) -> tuple[str, ...]:
    """The codes of the languages that a file names: "French", "English, French". Those that no row describes are left out.

    If there is none, the result is the first part of the first name.
    """
    codes = [_code(name) for name in _BETWEEN.split(names) if name.strip()] or [ENGLISH]
    return tuple(dict.fromkeys(code for code in codes if code in LANGUAGES)) or (codes[0],)


def code_of(names: str) -> str:
    """The first of `codes_of`."""
    return codes_of(names)[0]


_BETWEEN = re.compile(r"[,;/&]| and ")


def _code(name: str) -> str:
    """The code of a language from what a file calls it: "French", "fra", "fr-CA"."""
    first = name.replace("_", "-").strip().casefold()
    short = first.partition(" ")[0].partition("-")[0]
    if short in LANGUAGES:
        return short
    return next((code for code, row in LANGUAGES.items() if not {first, short}.isdisjoint(row.names.split())), short)


_STROKES = str.maketrans("øØłŁđĐ", "oOlLdD")


def unaccented(text: str) -> str:
    """The text without the accents of its letters, which capital letters often lack."""
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFD", text.translate(_STROKES))
    return "".join(char for char in parts if not unicodedata.combining(char))


@cache
def abbreviations(language: str) -> frozenset[str]:
    """Words that end no sentence, with their full stops."""
    words = LANGUAGES[language].abbreviations.split() if language in LANGUAGES else []
    return frozenset(f"{spelling}." for word in words for spelling in (word, word[0].upper() + word[1:]))
