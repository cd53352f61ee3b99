"""What `semel check` tells: how far it is, what it found, and what the three semantics have lost and doubled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from semel.cli.output import Cell, Output, count_text

if TYPE_CHECKING:
    from pathlib import Path

    from semel.log.inspection.findings import Findings
    from semel.sim.attack.checking import Check
    from semel.sim.judging.report import Report


class ComparedNodes(NamedTuple):
    """The directories of a cluster's nodes, every two of them beside each other."""

    nodes: int
    offsets: int
    findings: Findings

    def wrong(self) -> list[str]:
        return [f"{found.kind.label}: {found.where()}: {found.what}" for found in self.findings if found.is_wrong]


def done_so_far(check: Check) -> str:
    """In few words, what counts most first: a terminal may be narrow."""
    faults = _faults(check)
    return f"{check.phase}, {check.counts['written']:,} written, {check.counts['read']:,} read" + (
        f", {faults}" if faults else ""
    )


def done(check: Check) -> str:
    counts = check.counts
    parts = [
        count_text(counts["written"], "record") + " written",
        f"{counts['read']:,} read",
        count_text(counts["committed"], "transaction") + " committed",
        f"{counts['aborted']:,} aborted",
    ]
    faults = _faults(check)
    return ", ".join(parts) + (f"; faults: {faults}" if faults else "")


def _faults(check: Check) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted((kind.value, n) for kind, n in check.dealt.items()))


def show(check: Check, report: Report, replicas: ComparedNodes | None, history_path: Path, output: Output) -> None:
    output.line(f"{done(check)}.")
    if check.struck:
        output.line(", ".join(f"{count} {text}" for text, count in sorted(check.struck.items())) + ".")
    output.line()
    tallies = check.tallies()
    if tallies:
        rows = [[way.value, tally.sent, _bad(tally.lost), _bad(tally.duplicated)] for way, tally in tallies.items()]
        output.table(["semantics", "sent", "lost", "duplicated"], rows)
        output.line()
    show_anomalies(report, output)
    if replicas is not None:
        _show_replicas(replicas, output)
    output.line()
    is_clean = report.is_clean and not (replicas is not None and replicas.findings.is_wrong)
    facts: list[tuple[str, object]] = [("history", history_path), ("seed", check.plan.seed)]
    if check.local_root is not None and not is_clean:
        facts.append(("data of the nodes", check.local_root))
    output.facts(facts)


def _show_replicas(replicas: ComparedNodes, output: Output) -> None:
    wrong = replicas.wrong()
    for text in wrong:
        output.line(output.paint(text, "red"))
    if not wrong:
        shown = f"{count_text(replicas.offsets, 'offset')} of {replicas.nodes} stopped nodes were compared, two by two"
        output.line(output.paint(f"All replicas hold the same: {shown}.", "green"))


def _bad(count: int) -> object:
    return Cell(count, "red") if count else count


def show_anomalies(report: Report, output: Output) -> None:
    if not report.findings:
        output.line(output.paint("No anomaly was found.", "green"))
        return
    rows = []
    for finding in report.findings.values():
        verdict = Cell("forbidden", "red") if finding.forbidden else Cell("allowed", "green")
        rows.append([finding.kind.value, finding.count, verdict, finding.kind.meaning])
    output.table(["anomaly", "count", "verdict", "meaning"], rows)
    output.line()
    for finding in report.findings.values():
        output.line(f"{output.paint(finding.kind.value, 'bold')}, the first: {finding.first}")
    if report.is_clean:
        output.line(output.paint("Nothing that is forbidden was found.", "green"))


def anomalies(report: Report) -> list[dict[str, object]]:
    return [
        {
            "anomaly": finding.kind.value,
            "meaning": finding.kind.meaning,
            "forbidden": finding.forbidden,
            "allowed": finding.allowed,
            "examples": finding.examples or finding.allowed_examples,
        }
        for finding in report.findings.values()
    ]


def document(check: Check, report: Report, replicas: ComparedNodes | None, history_path: Path) -> dict[str, object]:
    wrong = [] if replicas is None else replicas.wrong()
    compared = {} if replicas is None else {"nodes": replicas.nodes, "offsets": replicas.offsets, "wrong": wrong}
    return {
        "is_clean": report.is_clean and not wrong,
        "anomalies": anomalies(report),
        "semantics": {
            way.value: {"sent": tally.sent, "lost": tally.lost, "duplicated": tally.duplicated}
            for way, tally in check.tallies().items()
        },
        "counts": dict(sorted(check.counts.items())),
        "faults": {kind.value: count for kind, count in check.dealt.items()},
        "struck": dict(sorted(check.struck.items())),
        "replicas": compared,
        "history": str(history_path),
        "seed": check.plan.seed,
    }
