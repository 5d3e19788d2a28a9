"""Invented conversations for the chat-log layouts: names, texts, and what happens in a channel."""
# ruff: noqa: E501, SIM905 - long lists of words and templates read better as text

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from random import Random

from chat_layout_base import Event

NICKS = """orla teemu bram97 sunniva kwabena Lotte nils_h petra quill rashid tove ulla vik wanda yusuf zelda Imke fjord marlow
mika2 saoirse Tomasz hedda_ noor juno Ayla cosmo dagny elif_k x0r Benno gwen77 Pavlína Jürgen Ömer søren мария 李雷 ゆき nemo bo""".split()
WILD_NICKS = "hal|away [fox] gus^ `petal d-3v mel_- kim.lee zed\\ nat{afk} |ivo| a j^-^k pim|work Q[uax] 3dgar _iris_".split()
FULL_NAMES = """Orla Byrne;Teemu Aalto;Sunniva Moe;Kwabena Osei;Lotte de Wit;Nils Holm;Petra Novák;Rashid A. Khan;Tove Lind
Wanda M. Cruz;Yusuf Demir;Zelda Quist;Imke van der Laan;Mika Ito;Saoirse O'Dowd;Tomasz Żak;José Núñez;Dr. Hedda Falk;Noor Haddad
Ana Sofía Ruiz;Bruno Sá;Élodie Petit;Мария Котова;李 小龙;प्रिया शर्मा;Aunt Jo 🌻;+49 170 5550132;+1 (555) 010-7788;+91 98765 00123
Papa;Gwen;Nana ❤️;Benno (work);Elif""".replace("\n", ";").split(";")

THINGS = """printer build router oven parser kernel garden fence ticket invoice poster bike boiler slide deck driver tent lens server
cache soup rehearsal bus ferry exam cable battery map keyboard roof budget test suite branch greenhouse""".split()
VERBS = "broken fixed late gone fine slow merged missing burnt wet blocked ready stuck cheaper upside down empty".split()
PLACES = "Turku,Lyon,the cellar,Bergen,room 4,the depot,Porto,the north gate,Graz,the library,platform 7,Kraków".split(",")
URLS = """https://example.org/a/b?c=1&d=2 http://files.example.net:8080/x.tar.gz https://wiki.example.com/Garden_(plants)#top
www.example.org/help ftp://mirror.example.net/pub/ https://paste.example.com/raw/9f3ab2 http://[::1]:9000/status
https://example.com/2023/03/12/10:15""".split()

ENGLISH = """has anyone seen the {thing}?
the {thing} is {verb} again
no idea, try turning it off
lol
brb
ok
yes
no :(
hmm, did you check the {thing} first?
I moved the {thing} to {place}
who is coming to {place} on friday?
me!
+1
thanks, that worked
{thing} {num} still fails for me, same as yesterday
can you send me the {thing} list before lunch
what's the password for the {thing}... never mind, found it
it says "{thing} not found", what now?
see {url}
{url} is down
I think {nick} has the key
ask {nick}, not me
we need {num} chairs and a {thing}
morning all
good night 🌙
😂😂
🎉
that makes {num} so far
it's in {place}, second shelf on the left
why not use the old {thing}?
because it is {verb}, as always
I'll be {num} minutes late
fine by me
just pushed a fix, please pull
works on my machine
wrong channel, sorry
do we still want the {thing}? it costs {num} euros
let's talk about it tomorrow
sure, why not
so the {thing} was {verb} all along?!
^^ this
oh no
who changed the {thing}
I did not touch it
...
k
?
never heard of it; is that a kind of {thing}
anyway, back to work
the manual says to wait {num} seconds after the {thing} is {verb}, then to press the red button twice and hope""".split("\n")
TRICKY = """let's say 10:30, or 11:15 at the latest
10:30 works for me
12:05 - 12:40 is lunch
2023-03-05 was a sunday
05.03. or 06.03.?
at 8:12 PM sharp
re: {thing}: it is {verb}
note: the {thing} is {verb}
{nick}: hi
{nick}: did you see {url} ?
{nick}, have a look: {url}
@{nick} ping
@{nick}: yes, both
<b>not html</b>
<{nick}> said so yesterday
[done] {thing}
[x] {thing} [ ] tent
(see above)
(10:12) was the last time it worked
{{"{thing}": {num}, "ok": true}}
{{{thing}}}
for k in range({num}): print(k, end=": ")
C:\\temp\\{thing}.log: access denied
error: {thing}.c:{num}:12: expected ';' before '}}' token
> who said that?
>> nobody
-- old signature
--> look here
- first item
* not an action
*really* {verb}
**bold** and _thin_
| a | b | c |
a -> b => c
1) tea 2) coffee
#dev is the wrong place
/me thinks it is {verb}
/join #garden
~{num} km, +- 2
100% sure: no
=== stop ===
"quoted: like this"
«and like this»
x = y if z else {{}}
ssh root@example.net -p 2222
std::vector<int> v{{1, 2}};
s/{thing}/{verb}/
12345
:)
:: ::
-
*** what?
{nick} | {thing} | {num}
To: everyone, From: me
time: 10:12:01, place: {place}
has left the building: elvis""".split("\n")
OTHERS = {
    "de": "wo ist der Schlüssel?;schon wieder kaputt: {thing};ja, gerne;nein, erst morgen früh;Um 10:30 Uhr bei mir?;Äh, wieso?;"
    "{nick}: bitte {url} ansehen;bin in {num} Minuten da;schöne Grüße aus {place};haha 😂;das Brot ist fertig;na gut",
    "es": "¿dónde está la llave?;ya voy;no pasa nada;llego a las 10:30;mañana a las 8:15, ¿vale?;jajaja;¡qué bien! 🎉;"
    "mira esto: {url};faltan {num} sillas;{nick}: sí, claro;la {thing} no funciona;buenas noches",
    "pt": "cadê a chave?;já estou indo;não faz mal;chego às 10:30;amanhã então?;kkkkk;que bom! 🎉;olha isso: {url};"
    "faltam {num} cadeiras;{nick}: sim;o {thing} não funciona;boa noite, até amanhã",
    "fr": "où est la clé ?;j'arrive;c'est pas grave;rendez-vous à 10h30;demain alors ?;mdr;génial ! 🎉;regarde : {url};"
    "il manque {num} chaises;{nick} : oui;le {thing} est en panne;bonne nuit à tous",
    "it": "dov'è la chiave?;arrivo;va bene;alle 10:30 in {place};domani?;ahah;che bello! 🎉;guarda: {url};mancano {num} sedie",
    "ru": "где ключ?;уже иду;ничего страшного;буду в 10:30;завтра?;ахаха;отлично! 🎉;смотри: {url};не хватает {num} стульев;{nick}: да",
    "ja": "鍵はどこ？;今行きます;大丈夫です;10:30に{place}で;明日？;www;やった！🎉;これ見て: {url};椅子が{num}脚足りない;了解",
    "zh": "钥匙在哪里？;马上来;没关系;10:30 见;明天？;哈哈哈;太好了！🎉;看这个：{url};还差 {num} 把椅子;好的",
    "ko": "열쇠 어디 있어?;지금 가요;괜찮아요;10:30에 봐요;내일?;ㅋㅋㅋ;좋아요! 🎉;이거 봐: {url};네",
    "hi": "चाबी कहाँ है?;आ रहा हूँ;कोई बात नहीं;10:30 बजे मिलते हैं;कल?;हाहा;बहुत बढ़िया! 🎉;यह देखो: {url};ठीक है",
    "nl": "waar is de sleutel?;ik kom eraan;geeft niet;om 10:30 bij mij;morgen dan?;haha;top! 🎉;kijk: {url};nog {num} stoelen nodig",
    "tr": "anahtar nerede?;geliyorum;önemli değil;10:30'da;yarın mı?;haha;harika! 🎉;şuna bak: {url};{num} sandalye eksik",
    "ar": "أين المفتاح؟;أنا قادم;لا بأس;الساعة 10:30;غدا؟;ههههه;رائع! 🎉;تمام",
    "el": "πού είναι το κλειδί;;έρχομαι;δεν πειράζει;στις 10:30;αύριο;χαχα;τέλεια! 🎉",
    "fi": "missä avain on?;tulen kohta;ei se mitään;klo 10.30 sopii;huomenna?;hah;hienoa! 🎉;katso: {url}",
}
MORE_LINES = """and bring the {thing}, please
    indented = True
return {num}
- milk
- {num} eggs
1. open the {thing}
2. wait
see also {url}
(that was all)
...and the rest is {verb}
def {thing}(x):
second thing: the {thing} is {verb}
🙂
¿y qué?
so much for that
PS. it is {verb}
that's it
{place}, as I said
last line, promise""".split("\n")
TRICKY_LINES = """10:45 is also fine
{nick}: that is for you
> quoted line
* starred line
[ ] open point
5 March: {place}
=> {num}
-- {nick}""".split("\n")
REASONS = "bye,Ping timeout: 240 seconds,Quit: leaving,Read error: Connection reset by peer,*.net *.split,zzz,Remote host closed".split(
    ","
)
TOPICS = (
    "welcome | be kind",
    "release on friday: no merges",
    "Rule 1: no politics",
    "https://example.org/faq",
    "summer party, 12:00",
    "garden talk",
)
HOSTS = "203.0.113.7 cable-12.example.net user/quiet 2001:db8::5 gateway/web host-9.example.org".split()
CHANNELS = "#dev #garden #ops-talk #linux.fi #lounge ##maths".split()


class Speaker:
    """Makes texts of one language, and some that look like parts of a log."""

    def __init__(self, r: Random, people: Sequence[str], lang: str = "en", tricky: float = 0.12) -> None:
        self.r, self.people, self.lang, self.tricky = r, people, lang, tricky

    def fill(self, template: str) -> str:
        r = self.r
        slots = {"thing": r.choice(THINGS), "verb": r.choice(VERBS), "place": r.choice(PLACES), "url": r.choice(URLS)}
        return template.format_map(slots | {"nick": r.choice(self.people), "num": r.randrange(2, 400)})

    def text(self) -> str:
        r = self.r
        draw = r.random()
        if draw < self.tricky:
            return self.fill(r.choice(TRICKY))
        if self.lang in OTHERS and r.random() < 0.5:
            return self.fill(r.choice(OTHERS[self.lang].split(";")) or "…")
        if draw > 0.97:
            return self.fill(r.choice(OTHERS[r.choice(sorted(OTHERS))].split(";")) or "…")
        if draw > 0.85:
            return self.fill(r.choice(ENGLISH)) + r.choice((" ", ", ", ". ", "... ")) + self.fill(r.choice(ENGLISH))
        return self.fill(r.choice(ENGLISH))

    def more(self, tricky: bool, inside: bool) -> list[str]:
        """The further lines of a message."""
        r = self.r
        lines: list[str] = []
        for _ in range(r.choice((1, 1, 1, 2, 2, 3, 5))):
            if inside and lines and r.random() < 0.3:
                lines.append("")
            hard = tricky and r.random() < 0.2
            lines.append(self.fill(r.choice(TRICKY_LINES if hard else MORE_LINES)))
        if inside and r.random() < 0.3:
            lines.insert(0, "")
        return lines


def start_day(r: Random, dates: str) -> datetime:
    """`clear` days are after the 12th, `cross` days are the 12th, `low` days are before the 8th and differ from the month."""
    year, month = r.choice((2009, 2014, 2018, 2019, 2021, 2022, 2023, 2024)), r.randrange(1, 13)
    if dates == "clear":
        day = r.randrange(13, 25)
    elif dates == "cross":
        day = 12
    elif dates == "low":
        day, month = r.randrange(1, 5), r.randrange(8, 13)
    else:
        day = r.randrange(1, 25)
    at = date(year, month, day)
    return datetime(at.year, at.month, at.day, r.randrange(6, 22), r.randrange(60), r.randrange(60))


def talk(
    r: Random,
    people: Sequence[str],
    *,
    start: datetime,
    count: int,
    lang: str = "en",
    tricky: float = 0.12,
    notes: Sequence[str] = (),
    busy: float = 0.15,
    actions: float = 0.0,
    multi: float = 0.0,
    hard_lines: bool = False,
    inside: bool = False,
    empty: float = 0.0,
    days: int = 0,
    early: bool = False,
) -> list[Event]:
    """A conversation with `count` messages and, between them, actions and notices of the kinds `notes`.

    The date changes `days` times; with `early`, first within the first ten messages. `inside` puts blank lines into messages.
    """
    speaker = Speaker(r, people, lang, tricky)
    weights = [1 / (1 + place) for place in range(len(people))]
    jumps = set(r.sample(range(12, count - 2), days)) if days else set()
    if early:
        jumps.add(r.randrange(4, 9))
    when = start + timedelta(milliseconds=r.randrange(1000))
    events: list[Event] = []
    last = ""
    for number in range(count):
        if number in jumps:
            when = datetime(when.year, when.month, when.day, r.randrange(6, 12), r.randrange(60), r.randrange(60)) + timedelta(
                days=1
            )
        elif number:
            when += timedelta(milliseconds=int(1000 * r.choice((0.7, 3, 8, 20, 45, 90, 200, 400)) * (0.4 + r.random())))
        if number and when.date() != events[-1].when.date() and number not in jumps:
            when = datetime(events[-1].when.year, events[-1].when.month, events[-1].when.day, 23, 59, 59, 999000)
            when = max(when, events[-1].when)
        while notes and r.random() < busy:
            events.append(_notice(r, r.choice(notes), people, when))
        if actions and r.random() < actions:
            doing = speaker.fill(r.choice(DOINGS))
            events.append(Event("action", r.choice(people), (doing,), when))
        who = last if last and r.random() < 0.25 else r.choices(people, weights)[0]
        last = who
        lines = [speaker.text()]
        draw = r.random()
        # A log that has empty or long messages has one soon after its beginning.
        if empty and (draw < empty or number in (3, count // 2)):
            lines = [""]
        elif multi and (draw > 1 - multi or number in (5, count // 3)):
            lines += speaker.more(hard_lines, inside)
        events.append(Event("message", who, tuple(lines), when))
    return events


DOINGS = """waves
shrugs and looks at the {thing}
is away: food
goes to {place}
thinks the {thing} is {verb}
hands {nick} a {thing}
sighs
is back (gone 0:45:10)
hides behind {nick}""".split("\n")


def _notice(r: Random, kind: str, people: Sequence[str], when: datetime) -> Event:
    who = r.choice([*people, r.choice(NICKS)])
    other = r.choice([name for name in people if name != who] or ["someone"])
    fields = {"other": other, "host": r.choice(HOSTS), "reason": r.choice(REASONS), "topic": r.choice(TOPICS)}
    fields |= {
        "chan": r.choice(CHANNELS[:2]),
        "new": who.split()[0] + r.choice(("_", "|away", "2", "^")),
        "num": r.randrange(2, 99),
    }
    fields |= {"ident": "~" + who[:5].lower().replace(" ", "")}
    return Event(kind, who, (), when, fields)
