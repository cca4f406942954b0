"""Who presses Ctrl-C twice means the same thing twice."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from dlcheck.measure import interruptions


@pytest.fixture(autouse=True)
def _python_hears_them() -> Iterator[None]:
    """Whoever started the tests may ignore it, and children inherit that."""
    known = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, known)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_what_comes_while_files_are_put_back_comes_afterwards() -> None:
    done = []

    def put_back() -> None:
        with interruptions.put_off():
            interrupt()
            with interruptions.put_off():
                interrupt()
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        put_back()
    assert done == ["all of it"]


def test_an_error_does_not_swallow_what_was_put_off() -> None:
    def fail() -> None:
        with interruptions.put_off():
            interrupt()
            raise OSError

    with pytest.raises(KeyboardInterrupt):
        fail()


def test_a_second_signal_is_none_while_there_is_something_to_put_back(capfd: pytest.CaptureFixture[str]) -> None:
    open_ = [True]
    with interruptions.heeded(lambda: bool(open_)):
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        for _ in range(3):
            interrupt()
        with interruptions.put_off():
            interrupt()
        open_.clear()
        interrupt()  # still of the same breath
    assert capfd.readouterr().err.count("the program's files are put back first") == 2
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_who_is_not_heard_can_say_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruptions, "AGAIN_S", 0.0)
    with interruptions.heeded(lambda: False):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interrupt()


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal here")
def test_what_is_ignored_stays_ignored() -> None:
    """As under nohup."""
    known = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptions.heeded(lambda: False), interruptions.put_off():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, known)


def test_other_threads_have_no_signals() -> None:
    heard: list[str] = []

    def work() -> None:
        with interruptions.heeded(lambda: True), interruptions.put_off():
            heard.append("nothing")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == ["nothing"]
