"""The reports of a process to its supervisor."""

from __future__ import annotations

import socket

from jmsql.worker.reports import HandlerCounters, Progress, Report, ReportReader, ReportWriter


def test_a_supervisor_that_does_not_read_holds_nothing_up_and_reads_whole_reports_later() -> None:
    sender, receiver = socket.socketpair()
    with sender, receiver:
        writer, reader = ReportWriter(sender), ReportReader(receiver)
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
