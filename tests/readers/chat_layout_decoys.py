"""Twenty texts that are no chats, each with something that looks like one: times, colons, names, brackets."""

from random import Random

from chat_layout_base import WEEKDAYS, Decoy
from chat_layout_talk import FULL_NAMES, NICKS, PLACES, THINGS, VERBS


def sentence(r: Random) -> str:
    starts = ("The", "An old", "Every", "Their", "No", "A second")
    ends = ("as the rain began", "before noon", "and nobody asked why", "for the third time", "near " + r.choice(PLACES))
    return f"{r.choice(starts)} {r.choice(THINGS)} was {r.choice(VERBS)} {r.choice(ends)}."


def paragraph(r: Random, count: int) -> str:
    return " ".join(sentence(r) for _ in range(count))


def wrapped(text: str, width: int = 76) -> str:
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) >= width:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def csv(r: Random) -> str:
    rows = ["date,time,item,amount,price"]
    rows += [
        f"2023-03-{d:02},{r.randrange(8, 19):02}:{r.randrange(60):02},{r.choice(THINGS)},{r.randrange(9)},{r.randrange(99)}.50"
        for d in range(1, 31)
    ]
    return "\n".join(rows)


def prose(r: Random) -> str:
    return "\n\n".join(wrapped(paragraph(r, 7)) for _ in range(9))


def source(r: Random) -> str:
    parts = ["import sys", "", "LIMIT = 12", ""]
    for name in r.sample(THINGS, 9):
        parts += [f"def {name}(items: list[int], limit: int = LIMIT) -> int:", f'    """Count the {name}s."""', "    total = 0"]
        parts += [
            "    for item in items:",
            f"        if item > {r.randrange(60)}:  # note: {r.choice(VERBS)}",
            "            total += item",
        ]
        parts += ['    print(f"[{total}] <done>: {limit}", file=sys.stderr)', "    return total", "", ""]
    return "\n".join(parts)


def json(r: Random) -> str:
    parts = ["{", '  "version": 3,', '  "items": [']
    for number in range(14):
        parts += [
            "    {",
            f'      "id": {number},',
            f'      "name": "{r.choice(THINGS)}",',
            f'      "at": "2023-03-05T10:{number:02}:00Z",',
            f'      "owner": "{r.choice(NICKS[:5])}"',
            "    },",
        ]
    return "\n".join([*parts[:-1], "    }", "  ]", "}"])


def access_log(r: Random) -> str:
    paths = ("/", "/index.html", "/a/b.css", "/feed?x=1", "/robots.txt")
    return "\n".join(
        f"203.0.113.{r.randrange(2, 9)} - - [05/Mar/2023:10:{n:02}:{r.randrange(60):02} +0100] "
        f'"GET {r.choice(paths)} HTTP/1.1" {r.choice((200, 304, 404))} {r.randrange(9000)} "-" "Mozilla/5.0 (X11; Linux)"'
        for n in range(50)
    )


def stack_trace(r: Random) -> str:
    parts = ['Exception in thread "main" java.lang.IllegalStateException: printer: queue is closed']
    for _ in range(3):
        for _ in range(11):
            thing = r.choice(THINGS)
            parts.append(f"\tat org.example.{thing}.{thing.title()}Pool.run({thing.title()}Pool.java:{r.randrange(10, 400)})")
        parts.append(f"Caused by: java.io.IOException: {r.choice(THINGS)}: not found")
    return "\n".join([*parts, "\t... 9 more"])


def diary(r: Random) -> str:
    parts = []
    for day in range(3, 23, 2):
        name = WEEKDAYS["en"].split()[(day + 1) % 7]
        parts += [
            f"{name}, {day} March 2023",
            "",
            wrapped(f"Up at {r.randrange(5, 8)}:{r.randrange(10, 60)}. " + paragraph(r, 4)),
            "",
        ]
    return "\n".join(parts)


def screenplay(r: Random) -> str:
    parts = ["FADE IN:", "", "INT. GREENHOUSE - NIGHT", "", "Rain on the glass. TOVE (40) counts pots.", ""]
    for number in range(16):
        parts += [" " * 22 + r.choice(("TOVE", "RASHID", "THE GARDENER"))]
        if number % 4 == 1:
            parts += [" " * 16 + "(without looking up)"]
        parts += [" " * 11 + line for line in wrapped(sentence(r), 36).split("\n")]
        parts += [""]
        if number % 5 == 4:
            parts += [f"EXT. {r.choice(PLACES).upper()} - DAY", "", sentence(r), ""]
    return "\n".join([*parts, "CUT TO BLACK."])


def subtitles(r: Random) -> str:
    parts = []
    for number in range(1, 31):
        start = number * 4
        parts += [
            str(number),
            f"00:{start // 60:02}:{start % 60:02},120 --> 00:{start // 60:02}:{start % 60 + 2:02},900",
            sentence(r),
            "",
        ]
    return "\n".join(parts)


def mail_thread(r: Random) -> str:
    parts = [
        "From: Tove Lind <tove@example.org>",
        "To: garden@example.org",
        "Subject: Re: Re: the north fence",
        "Date: Sun, 05 Mar 2023 10:12:01 +0100",
        "",
    ]
    for depth in range(5):
        mark = "> " * depth
        parts += [
            mark + line
            for line in ["Hi all,", "", *wrapped(paragraph(r, 3), 60).split("\n"), "", "Regards", r.choice(FULL_NAMES[:8]), ""]
        ]
        parts += [f"{mark}On {4 - depth} Mar 2023, at 1{depth}:20, {FULL_NAMES[depth]} wrote:"]
    return "\n".join(parts)


def recipe(r: Random) -> str:
    parts = ["Leek soup with rye", "", "Serves: 4", "Time: 0:45", "", "Ingredients:"]
    parts += [
        f"- {r.randrange(1, 9)}00 g {name}"
        for name in ("leeks", "potatoes", "rye bread", "butter", "cream", "onions", "celery", "dill")
    ]
    parts += ["", "Method:"]
    steps = ("Wash", "Chop", "Fry", "Boil", "Stir", "Season", "Blend", "Cool", "Slice", "Toast", "Serve")
    parts += [
        f"{n}. {step} for {r.randrange(2, 30)} minutes, then rest: the pot must not boil over."
        for n, step in enumerate(steps, 1)
    ]
    return "\n".join([*parts, "", "Note: freezes well.", "Wine: none.", *wrapped(paragraph(r, 6)).split("\n")])


def poem(r: Random) -> str:
    ends = ("stone", "alone", "light", "night", "sea", "me", "rain", "again")
    verses = []
    for _ in range(9):
        verses.append(
            "\n".join(
                f"{r.choice(('And', 'Where', 'No', 'My', 'O'))} {r.choice(THINGS)} {r.choice(('of', 'in', 'by'))} the {end},"
                for end in r.sample(ends, 4)
            )
        )
    return "\n\n".join(verses)


def bibliography(r: Random) -> str:
    parts = []
    for number in range(1, 34):
        names = " and ".join(r.sample(("Lind, T.", "Osei, K.", "Aalto, T.", "Novák, P.", "Quist, Z."), 2))
        thing = r.choice(THINGS).title()
        parts.append(
            f"[{number}] {names} ({r.randrange(1961, 2024)}). {thing}: a study. In: Proc. {r.choice(PLACES)}, "
            f"{r.randrange(9)}({number}):{r.randrange(10, 90)}-{r.randrange(90, 120)}."
        )
    return "\n".join(parts)


def application_log(r: Random) -> str:
    parts = []
    for number in range(60):
        level, part = r.choice(("INFO ", "DEBUG", "WARN ")), r.choice(("storage.Pool", "http.Server", "Scheduler"))
        what = r.choice(
            (
                "resized to {} slots",
                "request took {} ms",
                "retry in {} s: connection reset",
                "cache hit ratio 0.{}",
                "job {} done",
            )
        )
        parts.append(
            f"2023-03-05 10:{number:02}:{r.randrange(60):02},{r.randrange(1000):03} {level} [worker-{r.randrange(3)}] {part}: "
            + what.format(r.randrange(10, 99))
        )
    return "\n".join(parts)


def glossary(r: Random) -> str:
    return "\n".join(f"{thing}: {sentence(r).lower()}" for thing in sorted(set(THINGS)))


def timetable(r: Random) -> str:
    parts = ["Line 12   Mon-Fri", ""]
    for hour in range(6, 14):
        parts += [f"{hour:02}:{minute:02}  {place}" for minute, place in zip((5, 17, 31, 48), r.sample(PLACES, 4))]
    return "\n".join([*parts, "", "(a) school days only", "(b) not on 24:12."])


def verses(r: Random) -> str:
    return "\n".join(f"{chapter}:{verse} {sentence(r)}" for chapter in (1, 2, 3) for verse in range(1, 15))


def commits(r: Random) -> str:
    parts = []
    for number in range(12):
        parts += [
            "commit " + "".join(r.choice("0123456789abcdef") for _ in range(40)),
            f"Author: {r.choice(FULL_NAMES[:6])} <dev@example.org>",
        ]
        parts += [
            f"Date:   Sun Mar {number + 1} 10:{number + 12}:01 2023 +0100",
            "",
            f"    {r.choice(THINGS)}: {sentence(r)}",
            "",
        ]
    return "\n".join(parts)


def configuration(r: Random) -> str:
    parts = ["# garden server", "version: 2"]
    for thing in r.sample(THINGS, 8):
        parts += [
            f"{thing}:",
            f"  image: example/{thing}:1.{r.randrange(9)}",
            "  ports:",
            f'    - "80{r.randrange(10, 99)}:80"',
            f"  restart: {r.choice(('always', 'never'))}",
        ]
    return "\n".join(parts)


def changes(r: Random) -> str:
    parts = ["# Changes", ""]
    for number in range(9, 1, -1):
        parts += [
            f"## [1.{number}.0] - 2023-{number:02}-1{number}",
            "",
            *(f"- **{r.choice(THINGS)}**: {sentence(r)}" for _ in range(3)),
            "",
        ]
    return "\n".join(parts)


WRITERS = (
    csv,
    prose,
    source,
    json,
    access_log,
    stack_trace,
    diary,
    screenplay,
    subtitles,
    mail_thread,
    recipe,
    poem,
    bibliography,
)
WRITERS += (application_log, glossary, timetable, verses, commits, configuration, changes)


def make_decoys(seed: str) -> list[Decoy]:
    return [Decoy(writer.__name__.replace("_", "-"), writer(Random(f"{seed}:{writer.__name__}")) + "\n") for writer in WRITERS]
