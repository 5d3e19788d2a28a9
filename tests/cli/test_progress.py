"""Progress: the activities before the first step of training, on a terminal, in a log file, and for nobody."""

import re
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ramify.cli.progress import progress_display
from ramify.progress import Display, activity, shown_on, track
from ramify.tokenizer import Tokenizer

RECORD = {
    "step": 1,
    "progress": 0.1,
    "loss": 1.5,
    "seconds": 1.0,
    "target_tokens": 100,
    "metric": "dev_loss",
    "parts": [],
    "meters": [],
    "stages": 1,
}


class Recording(Display):
    """Keeps the name, the total and the counts of each activity."""

    def __init__(self):
        self.seen = []

    @contextmanager
    def activity(self, name, total):
        counts = []
        self.seen.append((name, total, counts))
        yield counts.append


@pytest.fixture
def clock(monkeypatch):
    """The time, which tests set."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("ramify.progress.time.monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a wide terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")


def rows(err):
    """The rows that a terminal showed, without colours, and without those that are like the row before."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\[2K", "", err).replace("\r", "\n")
    lines = [" ".join(re.sub("[━╸╺]+", "", line).split()) for line in plain.splitlines()]
    return [line for line, before in zip(lines, ["", *lines]) if line and line != before]


def test_nothing_is_shown_by_default(capsys):
    with activity("counting", 2) as advance:
        advance(2)
    assert list(track("reading", "abc")) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_work_that_is_broken_off_ends_its_activity(clock):
    """An activity that is left early is shown as ended, with all that was done."""
    ended = []

    class Ending(Display):
        @contextmanager
        def activity(self, name, total):
            counts = []
            try:
                yield counts.append
            finally:
                ended.append((name, sum(counts)))

    with shown_on(Ending()):
        letters = track("reading", "abc")
        assert next(letters) == "a"
        assert next(letters) == "b"
        letters.close()
    assert ended == [("reading", 1)]


def test_a_row_of_broken_off_work_is_finished(terminal, capfd):
    with progress_display():
        for _ in track("predicting", range(100), 100):
            break
        with activity("fitting"):
            pass
    last = {row.split()[0]: row for row in rows(capfd.readouterr().err)}
    assert "100%" in last["predicting"]


def test_a_display_is_told_a_few_times_per_second(clock):
    display = Recording()
    with shown_on(display):
        for number in track("reading", range(1000), 1000):
            clock.now += 0.001 * (number % 2)
    assert list(track("later", "ab")) == ["a", "b"]
    ((name, total, counts),) = display.seen
    assert (name, total, sum(counts)) == ("reading", 1000, 1000)
    assert 4 <= len(counts) <= 6


def test_the_tokenizer_counts_texts_from_its_own_threads():
    texts = [f"the man went to the store on day {number}" for number in range(300)]
    for kind, passes in (("wordpiece", 2), ("bpe", 1)):
        display = Recording()
        with shown_on(display):
            trained = Tokenizer.train(texts, kind=kind, vocab_size=300)
        ((name, total, counts),) = display.seen
        assert (name, total, sum(counts)) == ("training the tokenizer", passes * 300, passes * 300)
        assert trained.ids == Tokenizer.train(texts, kind=kind, vocab_size=300).ids


def test_a_log_file_has_a_line_for_each_activity(capsys, clock):
    with progress_display() as report:
        with activity("encoding texts", 200) as advance:
            for seconds in (1, 40, 20):
                clock.now += seconds
                advance(20)
        with activity("first step"):
            clock.now += 60
        report(RECORD)
        # Later activities, such as drawing the next epoch, are parts of steps.
        with activity("drawing"):
            report(RECORD | {"step": 6, "progress": 0.6})
    assert capsys.readouterr().err.splitlines() == [
        "encoding texts …",
        "encoding texts: 20%, 5 min 20 s left",
        "first step …",
        "step       1   10%  loss 1.5000  100 tokens/s",
        "step       6   60%  loss 1.5000  0 tokens/s  0 s left",
    ]


def test_a_further_stage_has_activities_and_a_pace_of_its_own(capsys, clock):
    """Its first share may be larger than the first of the stage before."""
    with progress_display() as report:
        for step in range(1, 101):
            clock.now += 1
            report(RECORD | {"step": step, "progress": step / 100, "stages": 2})
        with activity("encoding paragraphs"):
            clock.now += 600
        for step in (1, 2):
            clock.now += 5
            report(RECORD | {"step": 100 + step, "progress": step * 0.2, "stages": 2})
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "encoding paragraphs …",
        "step     101   20%  loss 1.5000  0 tokens/s",
        "step     102   40%  loss 1.5000  0 tokens/s  15 s of this stage left",
    ]


def test_a_terminal_shows_activities_and_then_steps(capsys, clock, terminal):
    """The time left follows from the steps after the first, which takes ten minutes here."""
    with progress_display() as report:
        with activity("encoding texts", 200) as advance:
            advance(0)
            for _ in range(2):
                clock.now += 10
                advance(50)
            clock.now += 10
            advance(100)
        with activity("first step"):
            clock.now += 600
        report(RECORD)
        clock.now += 2
        report(RECORD | {"step": 2, "progress": 0.2, "dev_loss": 2.0, "target_tokens": 300, "seconds": 3.0, "stages": 2})
    shown = rows(capsys.readouterr().err)
    assert [line.partition(" 0:00")[0] for line in shown[-3:-1]] == ["encoding texts 100%", "first step 100%"]
    assert shown[-1].startswith("step 2 20%")
    assert shown[-1].endswith("16 s of this stage left loss 1.5000 dev loss 2.0000 100 tokens/s")
    assert [line for line in shown if line.startswith("step 0") or "-:--:--" in line] == []


def test_processes_beside_the_first_show_nothing(capsys):
    with progress_display(enabled=False) as report, activity("encoding texts", 2) as advance:
        advance(1)
        report(RECORD)
    assert capsys.readouterr() == ("", "")


def test_another_thread_may_count(capsys):
    with progress_display(), activity("counting words", 2) as advance:
        thread = threading.Thread(target=advance, args=(2,))
        thread.start()
        thread.join()
    assert capsys.readouterr().err == "counting words …\n"
