"""Words for the second hundred of chat layouts, and eight texts that are no chats."""
# ruff: noqa: E501, SIM905 - long lists of words read better as text

from collections.abc import Callable
from random import Random

from chat_layout_base import Decoy


def split(text: str) -> list[str]:
    return [part.strip() for part in text.strip().replace("\n", " ¦ ").split("¦") if part.strip()]


# --- What people say -------------------------------------------------------------------------------------------------

POOLS = {
    "nick": """maeve dov_ 7even Ruairi lux-lena kpax tobi.k Björn ñandu zoé_ Łukasz ivo42 marta quux pip けん 小雨 олег_м r2-d9 nova Greta
        xX_nova_Xx moth sable Åse hugo99 Inès""".split(),
    "wild": "[m]arek cat|zzz `oops` ^_^ow o_O b^2 nul\\0 -dash- mrs|afk {neo} q|p [FTTH]anouk pip[1] _sue_ 4chan-ger kpax hugo99".split(),
    "full": split("""Maeve O'Shea ¦ Tobias Kern ¦ Jean-Luc Perrin ¦ Dr. Ana Lima ¦ Łucja Wójcik ¦ Núria Vidal i Pons ¦ J. R. Cole ¦ 佐藤 花子
        Иван Седов ¦ Lea (Vertrieb) ¦ Omar 2 ¦ Anaïs 🌙 ¦ +44 7700 900123 ¦ +34 612 00 11 22 ¦ Mum ¦ Coach Pete ⚽ ¦ Sven-Åke Dahl ¦ Greta
        Ngozi A. Eze ¦ Mme. Roux ¦ K. ¦ Oma Trude ¦ Zimmer 12, Empfang"""),
    "clean": split("""Maeve O'Shea ¦ Tobias Kern ¦ Jean-Luc Perrin ¦ Ana Lima ¦ Łucja Wójcik ¦ Núria Vidal ¦ Sven-Åke Dahl ¦ Omar Said
        Ngozi Eze ¦ Hana Sato ¦ Greta Lund ¦ Anaïs Roux"""),
    "cjk": split("佐藤 花子 ¦ けん ¦ 田中 ¦ 王小明 ¦ Hana ¦ 김민수 ¦ 鈴木（営業）"),
    "calls": split("DL0QX ¦ K9ZZA ¦ OH3ABQ ¦ F5XKP ¦ JA1YTT/P ¦ M0QRS"),
    "heads": split("MAEVE ¦ TOBI K. ¦ LUX LENA ¦ HUGO ¦ ME"),
    "strangers": ["You", "Stranger"],
    "assistant": ["You", "Lumo"],
}
ENGLISH = split("""did the delivery come already? ¦ yes, two boxes ¦ nope ¦ haha good one ¦ one sec ¦ thx!! ¦ 👍 ¦ 😅😅 ¦ the {thing} is on the balcony
the {thing} makes a strange noise since this morning ¦ who has the key to the {thing}? ¦ not me ¦ can we move it to Thursday? ¦ sure
I'm in, {n} others too ¦ is {n} enough? ¦ sold out :( ¦ then let's take the early train ¦ ok see you there ¦ the link again: https://example.net/t/{n}
just saw it ¦ never mind, {thing} found ¦ where are you all? ¦ still on the bus, {n} minutes ¦ good luck tomorrow 🍀 ¦ how much is it? ¦ about {n} euros
that's too much ¦ my {thing} needs a new battery ¦ bring yours then ¦ w00t ¦ omg ¦ k ¦ hm ¦ ... ¦ !!! ¦ 7 ¦ brilliant ¦ I don't get it
turn left after the church and it is the second door, the one with the green {thing} ¦ any news from {who}? ¦ {who} is asleep I guess ¦ lmk
works again, it was the cable ¦ ugh, rain ¦ tell {who} I said hi ¦ happy birthday {who} 🎂🎉 ¦ no worries ¦ see www.example.com/{thing}
Sorry for the long silence. I was away and had no signal. The {thing} is in the garage, and {who} has the second one. ¦ almost there ¦ done
room {n} is free until noon ¦ could somebody water the plants on floor {n}? ¦ my train left {n} minutes ago ¦ what a game last night!! ¦ lost my {thing} again
nobody told me about the {thing} ¦ then don't touch the {thing} ¦ the landlord wants {n} more ¦ ask again on Monday ¦ love it ❤️ ¦ seriously? ¦ fair point
the neighbours sold their {thing} for {n} euros ¦ I can bring a {thing} and {n} cups ¦ is the {thing} yours, {who}? ¦ we should rehearse once more ¦ tbh no
the password is on the back of the {thing} ¦ page {n} has a typo ¦ it's raining sideways here ¦ sent you a mail about the {thing} ¦ got it, thank you so much
count me out this time ¦ I'd rather have the blue one ¦ my phone is at {n}% ¦ does anyone speak Finnish? ¦ when does the {thing} shop close? ¦ gotta run, bye 👋""")
TRICKY = split("""{who}: are you coming? ¦ {who}, where did you put the {thing}? ¦ @{who} look at this ¦ {who} what about {n}? ¦ doors open 19:30, start 20:15
7:45 or 8:05? ¦ todo: buy {thing} ¦ PS: bring a {thing} ¦ "never", he said: "not with me" ¦ (or so I heard) ¦ [sic] ¦ [{n}] is the wrong ticket
> do we need the {thing}? ¦ *really*? ¦ *hug* ¦ **{thing}** first, then _rest_ ¦ https://example.org/x?y={n}&z=[1] ¦ http://localhost:8080/ fails
1. {thing} 2. tent 3. food ¦ - no comment - ¦ 24.12. works for me ¦ 2024-05-01 is a holiday ¦ 3/4 of them are gone ¦ -> {thing} ¦ :-D ¦ :: ¦ <3
<{thing}> is not a tag ¦ if (n > {n}) {{ return; }} ¦ key = "value: {n}" ¦ git push -f origin ¦ #{n} was fixed ¦ a | b ¦ 50% off! ¦ ~ {n} km ¦ C: or D:?
{who} said: "let's go" ¦ re: {thing} - ok ¦ {who} > {who} :P ¦ 12 ¦ E=mc² ¦ x: {n}, y: {n} ¦ re[2]: {thing} ¦ {n}:{n} for us! ¦ left: {n}""")
OTHERS = {
    "de": split("""Wo bleibst du denn? ¦ Bin gleich da ¦ Kein Problem 😊 ¦ Treffen um 18:30 Uhr am Bahnhof? ¦ Nein: erst um 19 Uhr ¦ Schönen Abend noch!
        Die Straßenbahn fährt heute nicht ¦ {who}, hast du den Schlüssel? ¦ Ach so ¦ Übrigens: https://example.de/plan/{n} ¦ Süß 😂"""),
    "fr": split("""Tu viens ce soir ? ¦ Oui, vers 19h30 ¦ J’ai pas compris… ¦ {who} : c’est à toi ! ¦ Ça marche 👍 ¦ « À bientôt », qu’il disait ¦ mdrr
        Il reste {n} places ¦ Voilà le lien : https://example.fr/a/{n} ¦ Quelqu’un a vu mes clés ?"""),
    "es": split("""¿Vienes hoy? ¦ Sí, a las 21:30 ¦ ¡No me digas! 😮 ¦ {who}: te toca ¦ Vale, mañana entonces ¦ jeje ¦ Mira: https://example.es/{n}
        Faltan {n} euros ¦ ¿Quién trae la guitarra? ¦ Qué pena"""),
    "ja": split("""今どこ？ ¦ もうすぐ着きます ¦ 了解です🙇 ¦ 18:30に駅前で ¦ えっ、本当に？ ¦ 資料: https://example.jp/{n} ¦ {who}さん、お願いします ¦ 笑 ¦ 明日は休みです
        「はい」と言った ¦ ありがとうございます！"""),
}
MORE = split("""and the {thing} too ¦ - {n} eggs ¦ - one {thing} ¦ see https://example.net/p/{n} ¦ also, my {thing} is back ¦ that's all from me 🙂
    total += {n} ¦ thanks in advance ¦ (no hurry) ¦ Rosenweg {n} ¦ ¿y tú? ¦ …or next week ¦ return {n} ¦ second part follows ¦ それと、傘も ¦ love""")
HARD = split(
    "{who}: this one is for you ¦ 18:15 meet at the bridge ¦ > really? ¦ * {thing} ¦ Lunch: {n} pizzas ¦ [ ] {thing} ¦ -- {who} ¦ 14 May: {thing}"
)
THINGS = (
    "drill canoe banner toaster flute ladder charger passport stove tripod server kettle blender projector trailer sofa".split()
)
MEDIA = split(
    "[Photo] ¦ <image omitted> ¦ 📎 minutes_{n}.pdf ¦ [Voice message, 0:{n}] ¦ (sticker) ¦ This message was deleted. ¦ [GIF] ¦ IMG_{n}.JPG ¦ Missed call"
)
DOINGS = split(
    "yawns ¦ hands {who} the {thing} ¦ is off to bed: 23:30 already ¦ hides ¦ looks at the {thing} and sighs ¦ dances"
)

# --- No chats --------------------------------------------------------------------------------------------------------


def remark(r: Random) -> str:
    some = (
        "The {} was left in the hall",
        "Nobody paid for the {}",
        "A {} costs more than that",
        "I never owned a {}",
        "Take the {} away",
    )
    return r.choice(some).format(r.choice(THINGS))


def play(r: Random) -> str:
    lines = [
        "THE EMPTY HARBOUR",
        "A Comedy in Two Acts",
        "",
        "PERSONS",
        "",
        "MIRA, a ferry captain",
        "OLD PELL, her uncle",
        "A CLERK",
        "",
    ]
    for act in ("ACT ONE", "ACT TWO"):
        lines += [act, "", "A jetty at dusk. MIRA mends a net; OLD PELL sits on a crate.", ""]
        for _ in range(12):
            aside = r.choice(("", "", " (aside)", " (rising)", " (to the CLERK)"))
            lines += [
                f"{r.choice(('MIRA', 'OLD PELL', 'CLERK'))}{aside}.",
                f"    {remark(r)}!",
                f"    {remark(r)}, my dear.",
                "",
            ]
        lines += ["[Exeunt. A bell is heard.]", ""]
    return "\n".join(lines)


def kernel_log(r: Random) -> str:
    at, lines = 0.0, []
    parts = (
        "usb 1-{n}: new high-speed device number {n}",
        "eth0: link up, {n}00 Mbps",
        "ACPI: button [PWR{n}]",
        "EXT4-fs (sda{n}): mounted filesystem",
    )
    for _ in range(60):
        at += r.random()
        lines.append(f"[{at:12.6f}] {r.choice(parts).format(n=r.randrange(1, 9))}")
    return "\n".join(lines)


def captions(r: Random) -> str:
    lines = ["WEBVTT", "Kind: captions", "Language: en", ""]
    for number in range(1, 41):
        lines += [
            str(number),
            f"00:{number // 10:02}:{number * 5 % 60:02}.000 --> 00:{number // 10:02}:{number * 5 % 60 + 3:02}.500",
            remark(r),
            "",
        ]
    return "\n".join(lines)


def story(r: Random) -> str:
    said = (
        '"{}," said {}.',
        '"{}?" asked {}, and closed the door.',
        '{1} looked up: it was 10:15 already. "{0}."',
        '{1} waited. "{0}!"',
    )
    pages = [
        " ".join(r.choice(said).format(remark(r), r.choice(("Ida", "the baker", "Mr. Voss"))) for _ in range(3))
        for _ in range(24)
    ]
    return "\n\n".join(["Chapter 3: The Bridge", *pages])


def database(r: Random) -> str:
    lines = ["-- Dump of shop, 2022-04-03 10:12:44", "CREATE TABLE item (id int, name text, at timestamp);", ""]
    lines += [
        f"INSERT INTO item VALUES ({n}, '{r.choice(THINGS)}: {n}', '2022-04-0{n % 9 + 1} 10:{n:02}:00');" for n in range(45)
    ]
    return "\n".join([*lines, "", "COMMIT;"])


def references(r: Random) -> str:
    lines: list[str] = []
    for number in range(12):
        lines += [
            f"@article{{key{number},",
            "  author = {Vidal, N. and Kern, T.},",
            f"  title = {{On the {r.choice(THINGS)}: a study}},",
        ]
        lines += [f"  pages = {{{number}--{number + 9}}},", f"  year = {{{r.randrange(1980, 2020)}}}", "}", ""]
    return "\n".join(lines)


def agenda(r: Random) -> str:
    lines = ["Annual meeting of the allotment club", "Saturday, 6 May 2023, town hall", ""]
    for hour in range(9, 18):
        lines += [
            f"{hour:02}:00 - {hour:02}:45  Talk: the {r.choice(THINGS)}",
            f"{hour:02}:45 - {hour + 1:02}:00  Break",
            "    Room 2, first floor",
            "",
        ]
    return "\n".join(lines)


def listing(r: Random) -> str:
    lines = ["total 812"]
    lines += [
        f"-rw-r--r-- 1 tobi staff {r.randrange(99, 99999):>6} Mar {n % 28 + 1:>2} 10:{n:02} {r.choice(THINGS)}_{n}.txt"
        for n in range(50)
    ]
    return "\n".join(lines)


WRITERS: tuple[Callable[[Random], str], ...] = (play, kernel_log, captions, story, database, references, agenda, listing)


def make_decoys(seed: str) -> list[Decoy]:
    names = [writer.__name__.replace("_", "-") for writer in WRITERS]
    return [Decoy(name, writer(Random(f"{seed}:{name}")) + "\n") for name, writer in zip(names, WRITERS)]
