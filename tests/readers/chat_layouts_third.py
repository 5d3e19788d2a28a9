"""The third set of chat layouts, with their truth, and fifty texts that are no chats.

Programs, locales, spellings of dates, separators, blanks at line ends and odd names. The set was written together with the
guessing of layouts, so that its figures are not blind.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from random import Random

from chat_layout_base import Decoy, Layout, Line, clock_of, time_parts
from chat_layout_base import Form as BaseForm

SEED = "chat layouts 3"

TALK = {
    "en": (
        "is anyone bringing plates on sunday?|I can, but no glasses|thanks|I have twelve if you need them|yes please"
        "|they are the short ones|short is fine|what time do we start?|two I think|did you book the room?|booked until six"
        "|see you there|who has the key|Ana has it|not any more: I gave it to Bo|ok|12:30 works, too|see https://example.org/a?b=1"
        "|that is what he said: no|it says (error 12) again|brb|lol|never mind|we need 3 more chairs|good night|- milk - eggs"
    ),
    "de": (
        "Wer bringt am Sonntag Teller mit?|Ich, aber keine Gläser|Danke|Ich habe zwölf, falls nötig|Gern|Es sind die kleinen"
        "|Klein ist gut|Wann fangen wir an?|Um zwei, glaube ich|Hast du den Raum?|Bis sechs|Bis dann|Wer hat den Schlüssel"
        "|Wir brauchen noch 3 Stühle|Treffpunkt: Bahnhof|Regnet es?|Noch nicht|Gut so"
    ),
    "es": (
        "¿Quién trae platos el domingo?|Yo, pero no vasos|Gracias|Tengo doce|Sí, por favor|Son los pequeños|Está bien"
        "|¿A qué hora empezamos?|A las dos|¿Reservaste la sala?|Hasta las seis|Nos vemos|Faltan 3 sillas|Lugar: la plaza|Llueve"
    ),
    "id": (
        "siapa yang bawa piring hari minggu|aku bawa piring, gelas tidak ada|oke makasih|gelas ada dua belas|boleh, bawa saja"
        "|yang kecil ya|kecil tidak apa apa|jam berapa mulai|jam dua kayaknya|ruangan sampai jam enam|siap|hujan nih"
    ),
    "ru": (
        "кто принесёт тарелки в воскресенье?|я, но без стаканов|спасибо|у меня есть двенадцать|да|они маленькие|хорошо"
        "|во сколько начинаем?|в два|ты забронировал зал?|до шести|до встречи|нужно ещё 3 стула|место: площадь|идёт дождь"
    ),
    "ar": (
        "من يحضر الصحون يوم الأحد|عندي صحون وليس عندي كؤوس|تمام شكرا|عندي اثنا عشر كأسا|نعم من فضلك|هي الصغيرة|الصغيرة جيدة"
        "|متى نبدأ|الساعة الثانية|القاعة حتى السادسة|حسنا|المكان: الساحة|نحتاج كراسي"
    ),
    "hi": (
        "रविवार को प्लेट कौन लाएगा|मैं लाऊँगा, पर गिलास नहीं|धन्यवाद|मेरे पास बारह हैं|हाँ, ले आओ|छोटे वाले हैं|ठीक है|कब शुरू करें"
        "|दो बजे|कमरा छह बजे तक है|मिलते हैं|तीन कुर्सियाँ और चाहिए"
    ),
    "ja": (
        "日曜日、皿は誰が持ってくる？|私が皿を持っていく。コップはない|了解、ありがとう|コップは12個あるよ|お願い|小さいやつだけど"
        "|大丈夫。何時から？|2時かな|部屋は6時まで|了解|場所：広場|雨だね|椅子が足りない"
    ),
    "zh": (
        "星期天谁带盘子？|我带，不过没有杯子|谢谢|我有十二个|好的|是小的|小的也行|几点开始？|两点吧|房间订到六点|到时见|下雨了|还差3把椅子"
    ),
    "ko": (
        "일요일에 접시 누가 가져와?|내가 가져갈게, 컵은 없어|고마워|컵은 열두 개 있어|부탁해|작은 거야|괜찮아|몇 시에 시작해?"
        "|두 시쯤|방은 여섯 시까지"
        "|그때 봐|비 온다|의자가 부족해"
    ),
    "fi": (
        "Kuka tuo lautaset sunnuntaina|Minä, mutta ei laseja|Kiitos|Minulla on kaksitoista|Joo|Ne ovat pieniä|Pieni käy"
        "|Monelta aloitetaan|Kahdelta kai|Varasitko salin|Kuuteen asti|Nähdään|Paikka: tori|Sataa taas|Tuoleja puuttuu 3"
    ),
    "tr": (
        "pazar günü tabakları kim getiriyor|ben getiririm, bardak yok|teşekkürler|on iki bardağım var|olur|küçük olanlar|olsun"
        "|saat kaçta başlıyoruz|ikide galiba|salon altıya kadar|görüşürüz|yer: meydan|yağmur yağıyor"
    ),
}
NAMES = {
    "latin": ("Ann Lee", "Bo", "Céline D.", "Dr. Dave"),
    "nicks": ("marta", "olu", "p_i-a", "x|away", "[kim]"),
    "odd": ("+49 170 1234567", "Ana 🌻", "Bo (work)", "O'Neill, Jr"),
    "emoji": ("🌻", "🦉🦉", "K."),
    "long": ("Maria del Carmen Núñez Prado", "Jean-Luc van der Berg", "Bo Lee"),
    "pair": ("Ann Lee", "Bo"),
    "ar": ("أحمد", "سلمى", "ليلى"),
    "hi": ("राहुल", "प्रिया शर्मा", "आशा"),
    "ja": ("健太", "美咲", "翔"),
    "zh": ("小雨", "李雷", "韩梅梅"),
    "ko": ("민수", "지영", "하늘"),
    "ru": ("Мария К.", "Олег", "Ира"),
    "family": ("Ann Lee", "Bo Lee", "Cy Lee"),
}
HALVES = {
    "ar": ("ص", "م"),
    "fa": ("ق.ظ.", "ب.ظ."),
    "el": ("π.μ.", "μ.μ."),
    "tr": ("ÖÖ", "ÖS"),
    "bn": ("AM", "PM"),
    "hi": ("पूर्वाह्न", "अपराह्न"),
    "hu": ("de.", "du."),
    "sq": ("p.d.", "m.d."),
}
DIGITS = {"ar": "٠١٢٣٤٥٦٧٨٩", "fa": "۰۱۲۳۴۵۶۷۸۹", "hi": "०१२३४५६७८९"}


@dataclass(frozen=True)
class Plan:
    """A layout: the form of messages, and how it varies.

    `note` is the form of lines of the channel; `more` the share of messages with further lines; `tail` ends each line,
    `step` is the most seconds between messages; `half` and `digits` are locales.
    """

    name: str
    said: str
    note: str = ""
    names: str = "latin"
    talk: str = "en"
    lang: str = "en"
    more: float = 0.0
    indent: str = ""
    tail: str = ""
    top: str = ""
    day: str = ""
    step: int = 240
    count: int = 44
    half: str = ""
    digits: str = ""
    between: bool = False
    modes: str = ""
    zone: tuple[str, int] | None = None


WA = "{who}: {text}"
PLANS = (
    # WhatsApp, Android and iOS, in locales.
    Plan("wa-en-us", "{M}/{D}/{Y2}, {h}:{MI} {AP} - " + WA, "{M}/{D}/{Y2}, {h}:{MI} {AP} - Bo added Cy", more=0.1),
    Plan("wa-en-gb", "{DD}/{MO}/{Y4}, {HH}:{MI} - " + WA, "{DD}/{MO}/{Y4}, {HH}:{MI} - Bo left", "odd"),
    Plan("wa-de", "{DD}.{MO}.{Y2}, {HH}:{MI} - " + WA, "{DD}.{MO}.{Y2}, {HH}:{MI} - Bo hat die Gruppe verlassen", talk="de"),
    Plan("wa-id", "{DD}/{MO}/{Y2} {HH}.{MI} - " + WA, "{DD}/{MO}/{Y2} {HH}.{MI} - Bo keluar", talk="id"),
    Plan("wa-es", "{D}/{M}/{Y2}, {H}:{MI} - " + WA, talk="es", more=0.2),
    Plan("wa-es-half", "{D}/{M}/{Y2} {h}:{MI} {apes} - " + WA, talk="es"),
    Plan("wa-ru", "{DD}.{MO}.{Y4}, {HH}:{MI} - " + WA, "{DD}.{MO}.{Y4}, {HH}:{MI} - Олег вышел(а)", "ru", "ru"),
    Plan("wa-ar", "{DD}‏/{MO}‏/{Y4}, {h}:{MI} {half} - " + WA, "", "ar", "ar", half="ar", digits="ar"),
    Plan("wa-ar-comma", "{DD}‏/{MO}‏/{Y4}، {h}:{MI} {half} - " + WA, "", "ar", "ar", half="ar", digits="ar"),
    Plan("wa-fa", "{Y4}/{M}/{D}،‏ {h}:{MI} {half} - " + WA, "", "ar", "ar", half="fa", digits="fa"),
    Plan("wa-hi", "{DD}/{MO}/{Y2}, {h}:{MI} {ap} - " + WA, "", "hi", "hi"),
    Plan("wa-hi-half", "{DD}/{MO}/{Y2}, {h}:{MI} {half} - " + WA, "", "hi", "hi", half="hi"),
    Plan("wa-el", "{D}/{M}/{Y2}, {h}:{MI} {half} - " + WA, half="el"),
    Plan("wa-tr", "{DD}.{MO}.{Y4} {HH}:{MI} - " + WA, talk="tr"),
    Plan("wa-tr-half", "{DD}.{MO}.{Y4} {half} {h}:{MI} - " + WA, talk="tr", half="tr"),
    Plan("wa-hu", "{Y4}. {MO}. {DD}. {half} {h}:{MI} - " + WA, half="hu"),
    Plan("wa-nl", "{DD}-{MO}-{Y4} {HH}:{MI} - " + WA),
    Plan("wa-fi", "{D}.{M}.{Y4} klo {H}.{MI} - " + WA, talk="fi"),
    Plan("wa-se", "{Y4}-{MO}-{DD} {HH}:{MI} - " + WA, names="long"),
    Plan("wa-ja", "{Y4}/{MO}/{DD} {HH}:{MI} - " + WA, "", "ja", "ja"),
    Plan("wa-zh", "{Y4}/{M}/{D} {apzh}{h}:{MI} - " + WA, "", "zh", "zh"),
    Plan("wa-ko", "{Y4}년 {M}월 {D}일 {apko} {h}:{MI} - " + WA, "", "ko", "ko"),
    Plan("ios-en", "[{M}/{D}/{Y2}, {h}:{MI}:{SS}\u202f{AP}] " + WA, more=0.1),
    Plan("ios-de", "[{DD}.{MO}.{Y2}, {HH}:{MI}:{SS}] " + WA, talk="de", names="odd"),
    Plan("ios-fi", "[{D}.{M}.{Y4} klo {H}.{MI}.{SS}] " + WA, talk="fi", names="family"),
    Plan("ios-fr", "[{DD}/{MO}/{Y4} à {HH}:{MI}:{SS}] " + WA),
    Plan("ios-nl", "[{DD}-{MO}-{Y2} {HH}:{MI}:{SS}] " + WA),
    Plan("ios-zh", "[{Y4}/{M}/{D} {apzh}{h}:{MI}:{SS}] " + WA, "", "zh", "zh"),
    Plan("ios-ar", "[{D}‏/{M}‏/{Y4}، {h}:{MI}:{SS} {half}] " + WA, "", "ar", "ar", half="ar", digits="ar"),
    Plan("ios-emoji", "[{DD}.{MO}.{Y2}, {HH}:{MI}:{SS}] " + WA, "", "emoji", more=0.2),
    Plan("wa-pair", "{DD}/{MO}/{Y4}, {HH}:{MI} - " + WA, "", "pair", count=12),
    # Messengers.
    Plan("signal-md", "[{Y4}-{MO}-{DD} {HH}:{MI}] " + WA, tail="  "),
    Plan("signal-md-more", "[{Y4}-{MO}-{DD} {HH}:{MI}] " + WA, tail="  ", more=0.2),
    Plan("signal-long", "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] " + WA, names="long"),
    Plan("telegram-head", "{who}, [{DD}.{MO}.{Y2} {HH}:{MI}]\n{text}", between=True),
    Plan("telegram-us", "{who}, [{M}/{D}/{Y4} {h}:{MI} {AP}]\n{text}", names="odd", between=True),
    Plan("telegram-line", "[{DD}.{MO}.{Y4} {HH}:{MI}] " + WA, "", "emoji"),
    Plan("zoom", "{HH}:{MI}:{SS}\t From  {who}  to  Everyone : {text}"),
    Plan("zoom-old", "{HH}:{MI}:{SS} From {who} : {text}", names="long"),
    Plan("zoom-new", "{HH}:{MI}:{SS} From {who} to Everyone:\n\t{text}"),
    Plan("zoom-date", "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} From {who} to Everyone: {text}"),
    Plan("teams", "[{M}/{D}/{Y4} {h}:{MI} {AP}] {who}\n{text}", between=True),
    Plan("teams-copy", "{who}  {M}/{D}/{Y4} {h}:{MI} {AP}\n{text}", names="long"),
    Plan("teams-iso", "{Y4}-{MO}-{DD} {HH}:{MI} | {who} | {text}"),
    Plan("skype", "[{DD}.{MO}.{Y4} {HH}:{MI}:{SS}] " + WA, more=0.1),
    Plan("skype-us", "[{M}/{D}/{Y4} {h}:{MI}:{SS} {AP}] " + WA),
    Plan("skype-time", "[{h}:{MI}:{SS} {AP}] " + WA),
    Plan(
        "line",
        "{HH}:{MI}\t{who}\t{text}",
        "{HH}:{MI}\t翔が退出しました。",
        "ja",
        "ja",
        top="[LINE] 山歩きのトーク履歴",
        day="{Y4}/{MO}/{DD}(水)",
    ),
    Plan("line-en", "{HH}:{MI}\t{who}\t{text}", "", "latin", top="[LINE] Chat history with Bo", day="Wed, {M}/{D}/{Y4}"),
    Plan("line-half", "{apko} {h}:{MI}\t{who}\t{text}", "", "ko", "ko", day="{Y4}.{MO}.{DD} 수요일"),
    Plan(
        "kakao",
        "[{who}] [{apko} {h}:{MI}] {text}",
        "",
        "ko",
        "ko",
        day="--------------- {Y4}년 {M}월 {D}일 수요일 ---------------",
    ),
    Plan("kakao-mobile", "{Y4}년 {M}월 {D}일 {apko} {h}:{MI}, {who} : {text}", "", "ko", "ko"),
    Plan("qq", "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} {who}({n5})\n{text}", "", "zh", "zh", between=True),
    Plan("qq-mail", "{Y4}-{MO}-{DD} {H}:{MI}:{SS} {who}<{n5}@example.cn>\n{text}", "", "zh", "zh", between=True),
    Plan("wechat", "{who} {Y4}-{MO}-{DD} {HH}:{MI}:{SS}\n{text}", "", "zh", "zh", between=True),
    Plan("viber", "[{DD}/{MO}/{Y4}, {HH}:{MI}] " + WA),
    Plan("viber-txt", "[ {DD}/{MO}/{Y4} {HH}:{MI} ] {who}: {text}"),
    Plan("viber-tab", "{DD}/{MO}/{Y4}\t{HH}:{MI}:{SS}\t{who}\t{text}"),
    Plan("threema", "[{DD}/{MO}/{Y4} {HH}:{MI}] " + WA, talk="de"),
    Plan("hangouts", "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} <{who}> {text}"),
    Plan("discord-copy", "[{HH}:{MI}]{who}: {text}"),
    Plan("discord-txt", "[{DD}-{MON}-{Y2} {hh}:{MI} {AP}] {who}#{n4}\n{text}", names="nicks", between=True),
    Plan("discord-plain", "{who} — {MO}/{DD}/{Y4} {h}:{MI} {AP}\n{text}", names="nicks"),
    Plan("slack-copy", "{who}  {h}:{MI} {AP}\n{text}"),
    Plan("slack-txt", "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] <{who}> {text}", names="nicks"),
    Plan("messenger", "{who} ({DD}.{MO}.{Y4} {HH}:{MI}): {text}"),
    Plan("sms", "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} - {who} - {text}", names="odd"),
    Plan("sms-from", "From {who} ({DD}/{MO}/{Y4} {HH}:{MI}): {text}", names="odd"),
    Plan("imessage", "{MON} {DD}, {Y4} {h}:{MI}:{SS} {AP} - {who}: {text}"),
    Plan("webex", "{who} {h}:{MI} {AP}\n{text}", names="long"),
    Plan("meet", "{HH}:{MI}:{SS}.{MS},{HH}:{MI}:{SS}.{MS}\n{who}: {text}"),
    Plan(
        "pidgin",
        "({HH}:{MI}:{SS}) {who}: {text}",
        top="Conversation with bo at 2024-01-30 22:50:00 on ann@example.org (jabber)",
    ),
    Plan("pidgin-us", "({hh}:{MI}:{SS} {AP}) {who}: {text}", names="nicks"),
    Plan("pidgin-date", "({DD}.{MO}.{Y4} {HH}:{MI}:{SS}) {who}: {text}"),
    Plan("adium", "{who} [{h}:{MI} {AP}]: {text}"),
    Plan("gajim", "[{HH}:{MI}:{SS}] {who}: {text}", "[{HH}:{MI}:{SS}] bo is now offline", "nicks"),
    Plan("psi", "|{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}|{who}|{text}", names="emoji"),
    Plan("matrix-tool", "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS}] @{who}:example.org: {text}", names="nicks"),
    Plan("element", "{MON} {D}, {Y4}, {HH}:{MI}:{SS} - {who}: {text}"),
    Plan("mumble", "[{HH}:{MI}:{SS}] (Channel) {who}: {text}", names="nicks"),
    Plan("teamspeak", '<{HH}:{MI}:{SS}> "{who}": {text}', names="nicks"),
    Plan("steam", "{who}: {text}\t{h}:{MI} {AP}"),
    Plan("twitch", "[{Y4}-{MO}-{DD} {HH}:{MI}:{SS} UTC] {who}: {text}", names="nicks"),
    Plan("twitch-channel", "[{HH}:{MI}:{SS}] #chan {who}: {text}", names="nicks"),
    Plan("youtube", "{HH}:{MI}:{SS} | {who}: {text}"),
    Plan(
        "minecraft",
        "[{HH}:{MI}:{SS}] [Server thread/INFO]: <{who}> {text}",
        "[{HH}:{MI}:{SS}] [Server thread/INFO]: olu joined the game",
        "nicks",
    ),
    Plan("minecraft-short", "[{HH}:{MI}:{SS} INFO]: <{who}> {text}", "[{HH}:{MI}:{SS} INFO]: olu left the game", "nicks"),
    Plan("terraria", "{MO}/{DD}/{Y4} {HH}:{MI}:{SS} - <{who}> {text}", "", "nicks"),
    Plan("wow", "{M}/{D} {HH}:{MI}:{SS}.{MS}  {who} says: {text}"),
    Plan("wow-guild", "{M}/{D} {HH}:{MI}:{SS}.{MS}  [Guild] {who}: {text}"),
    Plan("source", 'L {MO}/{DD}/{Y4} - {HH}:{MI}:{SS}: "{who}<{n}><STEAM_1:0:{n5}><Red>" say "{text}"', "", "nicks"),
    Plan("bbs", "{who}@{HH}:{MI}> {text}", names="nicks"),
    # IRC.
    Plan("znc", "[{HH}:{MI}:{SS}] <{who}> {text}", "[{HH}:{MI}:{SS}] *** Joins: olu (~olu@a.example)", "nicks"),
    Plan("znc-tail", "[{HH}:{MI}:{SS}] <{who}> {text}", "[{HH}:{MI}:{SS}] *** Joins: olu (~olu@a.example)", "nicks", tail=" "),
    Plan("channel-date", "#hut {Y4}-{MO}-{DD} [{HH}:{MI}:{SS}] <{who}> {text}", "", "nicks", tail=" "),
    Plan("irssi", "{HH}:{MI} < {who}> {text}", "{HH}:{MI} -!- olu [~olu@a.example] has joined #hut", "nicks", modes="@+ "),
    Plan(
        "weechat",
        "{Y4}-{MO}-{DD} {HH}:{MI}:{SS}\t{who}\t{text}",
        "{Y4}-{MO}-{DD} {HH}:{MI}:{SS}\t-->\tolu (~olu@a.example) has joined #hut",
        "nicks",
    ),
    Plan(
        "hexchat",
        "{MON} {DD} {HH}:{MI}:{SS} <{who}>\t{text}",
        "{MON} {DD} {HH}:{MI}:{SS} *\tolu (~olu@a.example) has joined",
        "nicks",
    ),
    Plan("psybnc", "{Y4}-{MO}-{DD}-{HH}-{MI}-{SS}:#hut::{who}!{who}@a.example PRIVMSG #hut :{text}", "", "nicks"),
    Plan("ircv3", "@time={Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z :{who}!~{who}@a{n}.example PRIVMSG #hut :{text}", "", "nicks"),
    Plan(
        "ircv3-tags",
        "@time={Y4}-{MO}-{DD}T{HH}:{MI}:{SS}.{MS}Z;msgid=a{n} :{who}!~{who}@a.example PRIVMSG #hut :{text}",
        "",
        "nicks",
    ),
    Plan("raw", "{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}Z :{who}!~{who}@a.example PRIVMSG #hut :{text}", "", "nicks"),
    Plan("eggdrop", "[{HH}:{MI}:{SS}] <{who}> {text}", "[{HH}:{MI}:{SS}] olu (~olu@a.example) joined #hut.", "nicks"),
    Plan("marks", "[{HH}:{MI}:{SS}] <{who}> {text}", "", "nicks", modes="@+"),
    Plan("square", "{HH}:{MI} [{who}] {text}", "{HH}:{MI} [olu has quit (timeout)]", "nicks"),
    Plan("channel-tab", "{Y4}-{MO}-{DD} {HH}:{MI}:{SS}\t#hut\t{who}\t{text}", "", "nicks"),
    # Compositions.
    Plan("epoch", "{EP} {who}: {text}"),
    Plan("epoch-bracket", "[{EPMS}] <{who}> {text}", "", "nicks"),
    Plan("code", "{n6x} {HH}:{MI} {who} | {text}"),
    Plan("level", "{Y4}-{MO}-{DD} {HH}:{MI}:{SS} INFO chat - {who}: {text}"),
    Plan("host", "{MON} {DD} {HH}:{MI}:{SS} a.example chatd[411]: <{who}> {text}", "", "nicks"),
    Plan("number", "{n}. [{HH}:{MI}] {who}: {text}"),
    Plan("arrow", "{DD}.{MO}.{Y4} {HH}:{MI} {who} → {text}"),
    Plan("guillemets", "{HH}:{MI} «{who}» {text}"),
    Plan("wide", "{Y4}-{MO}-{DD} {HH}:{MI} {who}：{text}", "", "zh", "zh"),
    Plan("stars", "{HH}:{MI} *{who}* {text}"),
    Plan("double-colon", "{Y4}/{MO}/{DD} {HH}:{MI} {who} :: {text}"),
    Plan("wrote", "{who} wrote on {DD}/{MO}/{Y4} at {HH}:{MI}:\n{text}"),
    Plan("schrieb", "{who} schrieb am {DD}.{MO}.{Y4} um {HH}:{MI}:\n{text}", talk="de"),
    Plan("account", "{HH}:{MI} {who} [{n4}]: {text}"),
    Plan("account-before", "{who} <{n4}> {DD}.{MO}.{Y4} {HH}:{MI}: {text}"),
    Plan("month-name", "{D} {MONTH} {Y4}, {HH}:{MI} - " + WA),
    Plan("month-de", "{D}. {MONTH} {Y4}, {HH}:{MI} Uhr - " + WA, talk="de", lang="de"),
    Plan("month-es", "{D} de {MONTH} de {Y4}, {H}:{MI} - " + WA, talk="es", lang="es"),
    Plan("month-ru", "{D} {MONTH} {Y4} {HH}:{MI} | {who} | {text}", "", "ru", "ru", lang="ru"),
    Plan("weekday", "{WEEKDAY}, {MONTH} {D}, {Y4} {h}:{MI} {AP} {who}: {text}"),
    Plan("time-last", "<{who}> {text} [{HH}:{MI}]", "", "nicks"),
    Plan("zoned", "{Y4}-{MO}-{DD}T{HH}:{MI}:{SS}{ZZ} {who}: {text}", zone=("CET", 60)),
    Plan("compact", "{Y4}{MO}{DD}T{HH}{MI}{SS}Z {who}: {text}"),
    Plan("compact-space", "{Y4}{MO}{DD} {HH}{MI}{SS} <{who}> {text}", "", "nicks"),
    Plan("minute-h", "{DD}/{MO}/{Y4} {HH}h{MI} - {who} : {text}"),
    Plan("no-year", "{DD}.{MO}. {HH}:{MI} {who}: {text}"),
    Plan("name-first-dash", "{who} - {DD}/{MO}/{Y4} {HH}:{MI} - {text}"),
    Plan("braces", "{{{HH}:{MI}}} {who}: {text}"),
    Plan("no-times", "<{who}> {text}", "", "nicks"),
    Plan("no-times-channel", "[#hut] <{who}> {text}", "", "nicks"),
)


def _layout(number: int, plan: Plan) -> Layout:
    chance = Random(f"{SEED}:{plan.name}")
    names, talk = NAMES[plan.names], TALK[plan.talk].split("|")
    now = datetime(2024, 1, 30, 19, 50) + timedelta(days=chance.randrange(200), minutes=chance.randrange(60))
    lines: list[str] = []
    truth: list[Line] = []
    clock, precision = clock_of(BaseForm(plan.said))
    day = ""

    def add(text: str, line: Line) -> None:
        lines.append(text + plan.tail)
        truth.append(line)

    if plan.top:
        add(plan.top, Line("system"))
    accounts = {name: str(chance.randrange(10_000, 99_999)) for name in names}
    last = ""
    for place in range(plan.count):
        now += timedelta(seconds=chance.randrange(1, plan.step), milliseconds=chance.randrange(1000))
        if place % 13 == 12:
            now += timedelta(hours=chance.randrange(9, 40))
        who = chance.choice([name for name in names if name != last or chance.random() < 0.3])
        last, text = who, chance.choice(talk)
        parts = {key: str(value) for key, value in time_parts(now, plan.lang, plan.zone).items()}
        if plan.half:
            parts["half"] = HALVES[plan.half][now.hour >= 12]
        if plan.digits:
            parts = {
                key: value.translate({ord(str(n)): digit for n, digit in enumerate(DIGITS[plan.digits])})
                for key, value in parts.items()
            }
        account = accounts[who]
        parts |= {"n": str(place + 1), "n4": account[:4], "n5": account, "n6x": f"{chance.randrange(1 << 24):06x}"}
        if plan.day and (this := plan.day.format_map(parts)) != day:
            day = this
            if place:
                add("", Line("blank"))
            add(day, Line("system"))
        time = now.isoformat(timespec="milliseconds")
        if plan.zone:
            time += f"+{plan.zone[1] // 60:02}:00"
        if clock == "none":
            time = None
        shown = who
        if plan.modes and chance.random() < 0.5:
            shown = chance.choice(plan.modes).strip() + who
        author = f"{who}#{account[:4]}" if "{who}#{n4}" in plan.said else who
        author = f"@{who}:example.org" if "@{who}:example.org" in plan.said else author
        first, _, below = plan.said.partition("\n")
        said = first.format_map({**parts, "who": shown, "text": text})
        aliases = ((who, text), (f"@{who}", text), (f"{who}:example.org", text)) if author != who else ()
        add(
            said,
            Line(
                "header" if below and "{who}" in first else "system" if below else "message",
                author,
                "" if below else text,
                time,
                others=aliases,
            ),
        )
        if below:
            indent = below.partition("{text}")[0].format_map({**parts, "who": shown})
            if "{who}" in below:
                truth[-1] = Line("system")
                add(indent + text, Line("message", author, text, time))
            else:
                add(indent + text, Line("continuation", text=text))
        if chance.random() < plan.more:
            more = chance.choice(talk)
            add(plan.indent + more, Line("continuation", text=more))
        if plan.between:
            add("", Line("blank"))
        if plan.note and place % 9 == 4:
            add(plan.note.format_map(parts), Line("system", "someone"))
    return Layout(
        f"{number:03}-{plan.name}",
        {"doubt": "clear"},
        "\n".join(lines) + "\n",
        tuple(truth),
        "full" if plan.day else "day" if clock == "full" and "{Y" not in plan.said and "{EP" not in plan.said else clock,
        precision,
        either_order=True,
    )


@cache
def layouts() -> tuple[Layout, ...]:
    return tuple(_layout(number, plan) for number, plan in enumerate(PLANS, 1))


# --- texts that are no chats ----------------------------------------------------------------------------------------------

ISO = "{Y4}-{MO}-{DD} {HH}:{MI}:{SS}"
SYSLOG = "{MON} {DP} {HH}:{MI}:{SS}"
MACHINES = {
    "syslog": (
        f"{SYSLOG} a1 sshd[{{a}}]: Accepted publickey for bo from 10.0.0.{{b}} port {{a}}",
        f"{SYSLOG} a1 CRON[{{a}}]: (root) CMD (run-parts /etc/cron.hourly)",
        f"{SYSLOG} a1 kernel: usb 1-{{b}}: new high-speed device number {{b}}",
        f"{SYSLOG} a1 systemd[1]: Started Session {{a}} of user bo.",
    ),
    "kernel": (
        "[{a}.{b}] usb {b}-1: new device found",
        "[{a}.{b}] eth0: link up, {b} Mbps",
        "[{a}.{b}] EXT4-fs (sda{b}): mounted filesystem",
    ),
    "access": (
        '10.0.0.{b} - bo [{DD}/{MON}/{Y4}:{HH}:{MI}:{SS} +0000] "GET /a/{a} HTTP/1.1" 200 {a}',
        '10.0.0.{b} - ann [{DD}/{MON}/{Y4}:{HH}:{MI}:{SS} +0000] "POST /b HTTP/1.1" 404 {a}',
    ),
    "python": (
        f"{ISO},{{MS}} INFO worker: job {{a}} done in {{b}} s",
        f"{ISO},{{MS}} WARNING queue: {{b}} jobs are waiting",
        f"{ISO},{{MS}} ERROR worker: job {{a}} failed",
    ),
    "python-colon": ("INFO:worker:job {a} done", "WARNING:queue:{b} jobs are waiting", "ERROR:worker:job {a} failed"),
    "java": (
        f"{ISO},{{MS}} [main] INFO  com.x.App - started in {{a}} ms",
        f"{ISO},{{MS}} [pool-{{b}}] WARN  com.x.Pool - {{b}} connections are idle",
    ),
    "short-names": (
        f"{ISO} [db] connected to 10.0.0.{{b}}",
        f"{ISO} [web] GET /a/{{a}} 200",
        f"{ISO} [db] query took {{a}} ms",
        f"{ISO} [web] GET /b 404",
    ),
    "compose": (
        "web_1  | {HH}:{MI}:{SS} GET /a/{a} 200",
        "db_1   | {HH}:{MI}:{SS} LOG:  checkpoint complete: wrote {a} buffers",
        "web_1  | {HH}:{MI}:{SS} POST /b 201",
    ),
    "levels": (
        f"[{ISO}] INFO: started task {{a}}",
        f"[{ISO}] DEBUG: task {{a}} took {{b}} ms",
        f"[{ISO}] INFO: task {{a}} is done",
    ),
    "angle-levels": (f"{ISO} <info> link {{b}} is up", f"{ISO} <warn> link {{b}} is slow", f"{ISO} <info> link {{b}} is down"),
    "network": (
        f"{SYSLOG} a1 NetworkManager[{{a}}]: <info>  device (wlan0): state change: {{b}} -> {{a}}",
        f"{SYSLOG} a1 wpa_supplicant[{{a}}]: wlan0: CTRL-EVENT-SIGNAL-CHANGE above={{b}}",
    ),
    "sensors": (f"{ISO} temperature: 2{{b}}.1", f"{ISO} humidity: 4{{b}}.0", f"{ISO} pressure: 10{{b}}"),
    "values": (f"{ISO} pump: flow={{a}} temp={{b}}", f"{ISO} valve: open={{b}} temp={{a}}"),
    "postgres": (
        f"{ISO} UTC [{{a}}] LOG:  duration: {{a}}.{{b}} ms  statement: SELECT {{b}}",
        f"{ISO} UTC [{{a}}] ERROR:  relation x{{b}} does not exist",
    ),
    "nginx": (
        "{Y4}/{MO}/{DD} {HH}:{MI}:{SS} [error] {a}#0: *{b} open() /a/{a} failed",
        "{Y4}/{MO}/{DD} {HH}:{MI}:{SS} [warn] {a}#0: *{b} upstream is slow",
    ),
    "git": (
        "commit {a}{a}",
        "Author: Ann <ann@example.org>",
        "Date:   {WD} {MON} {D} {HH}:{MI}:{SS} {Y4} +0100",
        "",
        "    Mend part {b}",
        "",
    ),
    "git-lines": (
        "{Y4}-{MO}-{DD} Ann Lee: Mend part {a}",
        "{Y4}-{MO}-{DD} Bo: Add part {a}",
        "{Y4}-{MO}-{DD} Ann Lee: Test part {a}",
    ),
    "changelog": ("{Y4}-{MO}-{DD}  Ann Lee  <ann@example.org>", "", "\t* part{b}.c: Mend.", ""),
    "ftp": (
        f"{ISO} 10.0.0.{{b}} ann [{{a}}] USER ann 331",
        f"{ISO} 10.0.0.{{b}} bo [{{a}}] RETR /a/{{a}}.zip 226",
        f"{ISO} 10.0.0.{{b}} ann [{{a}}] QUIT 221",
    ),
    "door": (f"{ISO} ann: badge {{a}} in", f"{ISO} bo: badge {{a}} out", f"{ISO} cy: badge {{a}} in"),
    "build": ("{HH}:{MI}:{SS} compile: part{b}.c", "{HH}:{MI}:{SS} link: part{b}.o", "{HH}:{MI}:{SS} test: {b} passed"),
    "make": ("gcc -c part{b}.c -o part{b}.o", "ar rcs lib{b}.a part{b}.o", "ld -o a{b} part{b}.o"),
    "ansible": ("TASK [copy part {b}] ****", "ok: [a{b}.example]", "changed: [b{b}.example]"),
    "dns": (
        f"{SYSLOG} dnsmasq[{{a}}]: query[A] a{{b}}.example from 10.0.0.{{b}}",
        f"{SYSLOG} dnsmasq[{{a}}]: forwarded a{{b}}.example to 1.1.1.1",
    ),
    "mailserver": (
        f"{SYSLOG} mx postfix/smtpd[{{a}}]: connect from a{{b}}.example[10.0.0.{{b}}]",
        f"{SYSLOG} mx postfix/qmgr[{{a}}]: {{a}}AF: from=<a@x.example>, size={{a}}",
    ),
    "android": (
        "{MO}-{DD} {HH}:{MI}:{SS}.{MS}  {a}  {a} I ActivityManager: Start proc {a} for service",
        "{MO}-{DD} {HH}:{MI}:{SS}.{MS}  {a}  {a} D WifiService: scan took {b} ms",
    ),
    "windows": (
        "{M}/{D}/{Y4} {h}:{MI}:{SS} {AP},Information,Service,{a},The service {b} was started.",
        "{M}/{D}/{Y4} {h}:{MI}:{SS} {AP},Error,Disk,{a},Disk {b} is full.",
    ),
    "crawler": (
        f"{ISO} [scrapy.core] DEBUG: Crawled (200) <GET https://x.example/{{a}}>",
        f"{ISO} [scrapy.stats] INFO: {{b}} pages a minute",
    ),
    "backup": (
        f"{ISO} backup: wrote {{a}} files",
        f"{ISO} prune: kept {{b}} archives",
        f"{ISO} check: {{a}} segments are sound",
    ),
    "gps": ("$GPGGA,{HH}{MI}{SS},48{a},N,011{a},E,1,0{b}", "$GPRMC,{HH}{MI}{SS},A,48{a},N"),
    "trading": ("{HH}:{MI}:{SS} BUY {b} ABC @ {a}.{b}", "{HH}:{MI}:{SS} SELL {b} XYZ @ {a}.{b}"),
    "chess": ("{b}. e4 {{[%clk 0:{MI}:{SS}]}} e5 {{[%clk 0:{MI}:{SS}]}}",),
    "listing": (
        "-rw-r--r-- 1 ann users {a} {MON} {DD} {HH}:{MI} part{b}.txt",
        "-rw-r--r-- 1 bo users {a} {MON} {DD} {HH}:{MI} part{b}.csv",
    ),
    "processes": ("ann   {a}  0.{b}  1.{b} python part{b}.py", "root  {a}  0.0  0.{b} [kworker/{b}]"),
    "timetable": ("{H}:00 Hall {b}: Keynote", "{H}:30 Room {b}: Workshop"),
    "results": ("{DD}.{MO}.{Y4} Ajax - PSV {b}:1", "{DD}.{MO}.{Y4} NEC - Ajax {b}:2"),
    "ledger": ("{Y4}/{MO}/{DD} Grocer", "    Expenses:Food    {a}.00 EUR", "    Assets:Bank"),
    "accounts": ("{Y4}-{MO}-{DD};Grocer;-{a}.00;EUR", "{Y4}-{MO}-{DD};Salary;{a}.00;EUR"),
    "table": ("{Y4}-{MO}-{DD},ann,{a},{b}", "{Y4}-{MO}-{DD},bo,{a},{b}"),
    "json": ('{{"time": "{HH}:{MI}", "author": "ann", "n": {a}}}', '{{"time": "{HH}:{MI}", "author": "bo", "n": {a}}}'),
    "sql": ("INSERT INTO m VALUES ({a}, 'ann', '{Y4}-{MO}-{DD}');", "INSERT INTO m VALUES ({a}, 'bo', '{Y4}-{MO}-{DD}');"),
    "yaml": ("- name: part{b}", "  time: {HH}:{MI}", "  size: {a}"),
    "ini": ("[part{b}]", "size = {a}", "time = {HH}:{MI}"),
    "code": ("def part{a}(x):", "    return x + {b}", ""),
    "c": ("int part{a}(int x) {{", "    return x > {b} ? x : {b};", "}}"),
    "subtitles": ("{b}", "00:{MI}:{SS},000 --> 00:{MI}:{SS},900", "ANN: where are you?", ""),
    "play": ("ANN: Who goes there? {b}", "BO: Nobody, my lord.", "ANN: Then speak."),
    "screenplay": ("INT. HALL {b} - NIGHT", "", "          ANN", "     Who goes there?", ""),
    "prose": (
        "It was {H} o'clock when Ann said: nobody comes.",
        "Bo answered that he had waited since {HH}:{MI}.",
        "Then both were silent for {b} days.",
    ),
    "diary": ("{WEEKDAY}, {D} {MONTH} {Y4}", "Rain again. Bo came at {HH}:{MI} and left soon.", ""),
    "mail": (
        "From: Ann <ann@example.org>",
        "Date: {WD}, {DD} {MON} {Y4} {HH}:{MI}:{SS} +0100",
        "Subject: part {b}",
        "",
        "See you soon.",
        "",
    ),
    "bibliography": (
        "Lee, A. ({Y4}). On parts. Journal of Parts, {b}, {a}.",
        "Bo, C. ({Y4}). More parts. Part Letters {b}: {a}.",
    ),
    "markdown": ("## Part {b}", "", "- first: {a}", "- second: {b}", ""),
    "glossary": ("part: a piece of {b}", "whole: all {a} parts", "hole: none"),
    "todo": ("[x] {Y4}-{MO}-{DD} write part {b}", "[ ] {Y4}-{MO}-{DD} read part {a}"),
    "addresses": ("Ann Lee: Main Street {b}", "Bo: Park Lane {a}", "Cy: High Street {b}"),
}


def decoys() -> list[Decoy]:
    """Logs of machines, tables, prose and code."""
    found: list[Decoy] = []
    for name, templates in MACHINES.items():
        chance = Random(f"{SEED}:{name}")
        now = datetime(2024, 1, 30, 9, 50)
        lines: list[str] = []
        while len(lines) < 48:
            kept = (
                templates if "" in templates or name in ("yaml", "ini", "ledger", "subtitles") else (chance.choice(templates),)
            )
            now += timedelta(seconds=chance.randrange(1, 400), milliseconds=chance.randrange(1000))
            fields = {**time_parts(now, "en", None), "a": chance.randrange(100, 9999), "b": chance.randrange(10, 40)}
            lines += [template.format_map(fields) for template in kept]
        found.append(Decoy(name, "\n".join(lines) + "\n"))
    return found
