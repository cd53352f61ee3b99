"""Shows what `semel log check` has found: what is wrong and where, and what follows from it."""

from __future__ import annotations

import os
import textwrap

from semel.cli.output import Output, count_text, printable
from semel.log.inspection.findings import Finding, Findings, Kind, Severity

_COLOURS = {Severity.DAMAGE: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}
_ORDER = list(Severity)
_WIDTH = 110
_INDENT = " " * 9


def show_findings(output: Output, findings: Findings, path: str, checked: str, *, is_running: bool) -> None:
    """`checked` says how much was looked at."""
    found = sorted(findings, key=lambda finding: _ORDER.index(finding.kind.severity))
    further = findings.further()
    if output.is_json:
        output.json(
            {
                "path": path,
                "is_running": is_running,
                "is_wrong": findings.is_wrong,
                "findings": [_as_json(finding) for finding in found],
                "further": [
                    {"kind": kind.label, "file": file, "count": count} for (kind, file), count in further.items()
                ],
            }
        )
        return
    told: set[Kind] = set()
    for finding in found:
        severity = finding.kind.severity
        title = output.paint(f"{severity.value.upper():<7}", _COLOURS[severity])
        output.line(f"{title}  {finding.kind.label}: {printable(_where(finding, path))}")
        output.line(textwrap.fill(printable(finding.what), _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT))
        if finding.kind not in told:  # what follows is the same for all of a kind
            told.add(finding.kind)
            meaning = textwrap.fill(finding.kind.meaning, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
            output.line(output.paint(meaning, "dim"))
    for (kind, file), count in further.items():
        output.line(f"{_INDENT}and {count:,} more {kind.label} in {printable(_short(file, path))}")
    wrong = sum(finding.is_wrong for finding in found) + sum(
        count for (kind, _), count in further.items() if kind.severity is not Severity.NOTE
    )
    result = output.paint(f"{count_text(wrong, 'thing')} wrong", "red") if wrong else output.paint("no damage", "green")
    output.line(f"{result} in {checked}")


def _where(finding: Finding, path: str) -> str:
    return finding._replace(path=_short(finding.path, path)).where()


def _short(file: str, path: str) -> str:
    """Seen from the directory that was asked about."""
    return os.path.relpath(file, path) if os.path.abspath(file).startswith(os.path.abspath(path) + "/") else file


def _as_json(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.kind.severity.value,
        "kind": finding.kind.label,
        "file": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "what": finding.what,
        "meaning": finding.kind.meaning,
    }
