"""Layouts of known programs, one pattern each."""

_TOLD = ("says", "shouts", "yells", "gossips", "auctions", "tells you", "tells the guild", "tells the group")

_SAID = ("says", "asks", "exclaims", "whispers", "say", "ask", "exclaim", "whisper")

_MSN = ("says", "dit ", "dit", "sagt", "dice", "diz", "disse", "zegt", "siger", "säger", "sier", "sanoo", "mówi", "говорит")

KNOWN: dict[str, str] = {
    "WhatsApp (Android)": "{date}, {time} - {author}: {text}",
    "WhatsApp (Android), without a comma": "{date} {time} - {author}: {text}",
    "WhatsApp (Android), Arabic and Persian": "{date}، {time} - {author}: {text}",
    "WhatsApp (iOS)": "[{date}, {time}] {author}: {text}",
    "WhatsApp (iOS), without a comma; signal-export": "[{date} {time}] {author}: {text}",
    "WhatsApp (iOS), Arabic and Persian": "[{date}، {time}] {author}: {text}",
    "Skype": "[{date} {time}{? | Edited {skip}}] {author}: {text}",
    "Skype, with a comma": "[{date}, {time}{? | Edited {skip}}] {author}: {text}",
    "Skype, without dates": "[{time}{? | Edited {skip}}] {author}: {text}",
    "Zoom": "{time} From {author}{? to {skip}}{? To {skip}}: {text}\n{time} From {author}: {text}",
    "Zoom, text below": "{time} From {author}{? to {skip}}{? To {skip}}:",
    "Zoom, with dates, text below": "{date} {time} From {author}{? to {skip}}{? To {skip}}:",
    "Zoom, with tabs": "{time}\\t From {author}{? To {skip}}{? to {skip}} : {text}",
    "Zoom, with dates": "{date} {time} From {author}{? to {skip}}{? To {skip}}: {text}\n{date} {time} From {author}: {text}",
    "Source server": 'L {date} - {time}: "{author}<{skip}><{skip}><{skip}>" say{?_team} "{text}"',
    "Telegram": "{author}, [{date} {time}]",
    "Telegram, text on the same line": "{author}, [{date} {time}]: {text}",
    "Teams": "{author} {date} {time}",
    "Teams, in brackets": "[{date} {time}] {author}",
    "LINE": "{time}\\t{author}\\t{text}",
    "QQ": "{date} {time} {author}({skip})",
    "QQ, with an address": "{date} {time} {author}<{skip}>",
    "Discord, copied": "[{time}] {author}: {text}",
    "Discord, DiscordChatExporter": "[{date} {time}] {author}{? (pinned)}",
    "IRC, irssi": "{time} <{author}> {text}",
    "IRC, ZNC and others": "[{time}] <{author}> {text}",
    "IRC, with dates": "{date} {time} <{author}> {text}",
    "IRC, WeeChat": "{date} {time}\\t{author}\\t{text}",
    "IRC, psybnc": "{date}-{time}:{skip}::{author}!{skip} PRIVMSG {skip} :{text}",
    "IRC, messages of the protocol (IRCv3)": "@time={date}T{time}{?;{skip}} :{author}!{skip} PRIVMSG {skip} :{text}",
    "IRC, messages of the protocol": "{date}T{time} :{author}!{skip} PRIVMSG {skip} :{text}",
    "IRC, messages of the protocol, after a time": "[{date} {time}] :{author}!{skip} PRIVMSG {skip} :{text}",
    "IRC, with hosts": "{date} {time} {author}!{skip}: {text}\n{date} {time} <{author}!{skip}> {text}",
    "IRC, with hosts, without dates": "[{time}] <{author}!{skip}> {text}\n{time} <{author}!{skip}> {text}",
    "Zoom, in German": "{time} Von {author} an {skip}:",
    "Zoom, in French": "{time} De {author} à {skip}:",
    "Zoom, captions (WebVTT)": "{?{skip}\\n}{time} --> {skip}\\n{author}: {text}",
    "Teams, captions (WebVTT)": "{?{skip}\\n}{time} --> {skip}\\n<v {author}>{text}</v>",
    "captions (WebVTT)": "{?{skip}\\n}{time} --> {skip}\\n<v {author}>{text}",
    "Meet, captions (SBV)": "{time},{skip}\\n{author}: {text}",
    "iMessage (imessage-exporter)": "{date} {time}{? ({skip})}\\n{author}",
    "Signal (signal-cli)": (
        "Envelope from: “{author}” {skip}\\nTimestamp: {date} ({skip})\\n{?Server timestamps: {skip}\\n}Body: {text}"
    ),
    "Signal (sigtop)": "From: {author}{? ({skip})}\\nType: {skip}\\nSent: {date} {time}{?\\nReceived: {skip}}",
    "SMS, printed": "From: {author}\\nTo: {skip}\\nDate: {date} {time}\\nText: {text}",
    "Viber": '{date},{time},{author},{skip},"{text}"',
    "a table with semicolons": '{date};{time};"{text}";{author}',
    "Tinder": "{author} → {skip} ({date} {time}): {text}",
    "text in quotation marks, signed": '"{text}" ({author}, {date} {time})',
    "text in corner brackets": "{time} {author}「{text}」",
    "text in corner brackets, with dates": "{date} {time} {author}「{text}」",
    "Salesforce": "( {skip} ) {author}: {text}",
    "MSN Messenger, without times": "\n".join(f"{{author}} {verb}:" for verb in _MSN),
    "WeChat, copied": "{author}：",
    "TeamSpeak": '<{time}> "{author}": {text}',
    "World of Warcraft": "\n".join(
        f"{{date}} {{time}} {said}: {{text}}"
        for said in (
            *(f"[{channel}] {{author}}" for channel in ("Party", "Guild", "Raid", "Officer", "{skip}. {skip}")),
            *(f"{{author}} {verb}" for verb in ("says", "yells", "whispers")),
        )
    ),
    "MUSH": "\n".join(f'{{author}} {verb}, "{{text}}"' for verb in _SAID),
    "MUD": "\n".join(f"{{author}} {verb}, '{{text}}'" for verb in (*_TOLD, *_SAID[1:])),
    "EverQuest": "\n".join(f"[{{date}}] {{author}} {verb}, '{{text}}'" for verb in _TOLD),
    "EVE Online": "[ {date} {time} ] EVE System > {system}\n[ {date} {time} ] {author} > {text}",
    "DikuMUD": "\n".join(f"{{author}} {verb} '{{text}}'" for verb in _TOLD),
    "matrix-commander": "Message received for room {skip} | sender {author} [{skip}] | event received {date} {time} | {text}",
    "write (Unix)": "Message from {author}@{skip} on {skip} at {time} ...",
    "CHAT (CLAN)": "*{author}:\\t{text}\n%{system}\n@{system}",
    "bip": "{date} {time} < {author}: {text}\n{date} {time} > {author}: {text}",
}
"""Program -> the pattern of its lines."""
