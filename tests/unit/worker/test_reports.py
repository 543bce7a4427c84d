"""The reports of a process to its supervisor."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from jmsql.worker.reports import HandlerCounters, Progress, Report, ReportReader, ReportWriter
from tests.descriptors import large_socketpair


def test_a_supervisor_that_does_not_read_holds_nothing_up_and_reads_whole_reports_later() -> None:
    sender, receiver = socket.socketpair()
    stop, stop_signal = socket.socketpair()
    with sender, receiver, stop, stop_signal:
        writer, reader = ReportWriter(sender, stop_signal, 60.0), ReportReader(receiver)
        counters = {f"listener {number}": HandlerCounters() for number in range(100)}
        for number in range(200):
            writer.send_at_once(Progress(number, handler_counters=counters))
        reports: list[Report] = []
        receiver.settimeout(0.0)
        try:
            while True:
                reports += reader.read() or []
        except BlockingIOError:
            writer.send_at_once(Progress(1000))  # after the rest of one that was sent in part
        receiver.settimeout(None)
        while Progress(1000) not in reports:
            reports += reader.read() or []
    numbers = [report.running for report in reports if isinstance(report, Progress)]
    assert numbers == [*range(len(numbers) - 1), 1000]
    assert len(numbers) < 150


class Lifeline:
    """A process's ends of its sockets, and those of its supervisor, which does not read."""

    def __init__(self, create_pair: Callable[[], tuple[socket.socket, socket.socket]]) -> None:
        self.sender, self.receiver = create_pair()
        self.stop, self.stop_signal = create_pair()
        self.writer = ReportWriter(self.sender, self.stop_signal, 0.05)
        while not self._is_full():
            pass

    def _is_full(self) -> bool:
        try:
            self.sender.send(b" " * 4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        return False

    def send_in_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self.writer.send, args=[Progress(1)], daemon=True)
        thread.start()
        return thread

    def close(self) -> None:
        for end in (self.sender, self.receiver, self.stop, self.stop_signal):
            end.close()


@pytest.fixture(params=[socket.socketpair, large_socketpair])
def lifeline(request: pytest.FixtureRequest) -> Iterator[Lifeline]:
    lifeline = Lifeline(request.param)
    yield lifeline
    lifeline.close()


def test_a_report_waits_for_a_supervisor_that_does_not_read(lifeline: Lifeline) -> None:
    sending = lifeline.send_in_thread()
    sending.join(0.2)
    assert sending.is_alive()
    reader = ReportReader(lifeline.receiver)
    reports: list[Report] = []
    while not reports:
        reports = reader.read() or []
    assert reports == [Progress(1)]
    sending.join(60)
    assert not sending.is_alive()


def test_a_process_that_is_told_to_stop_does_not_wait_for_a_supervisor_that_does_not_read(lifeline: Lifeline) -> None:
    sending = lifeline.send_in_thread()
    lifeline.stop.send(b"\0")
    sending.join(60)
    assert not sending.is_alive()


def test_a_report_does_not_wait_for_a_supervisor_that_has_ended(lifeline: Lifeline) -> None:
    sending = lifeline.send_in_thread()
    lifeline.receiver.close()
    sending.join(60)
    assert not sending.is_alive()
