"""All judges on one history: what they found, counted, with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from semel.sim.history import History
from semel.sim.judging.anomalies import Anomaly, Kind
from semel.sim.judging.consumption import consumption
from semel.sim.judging.facts import Facts
from semel.sim.judging.polls import skipped, stuck, unreadable, went_back
from semel.sim.judging.sends import out_of_order
from semel.sim.judging.transactions import aborted_reads, early_reads, torn, unfenced
from semel.sim.judging.writes import duplicates, inconsistent_offsets, lost_writes, phantoms, unplaced

EXAMPLES = 5

JUDGES: tuple[Callable[[Facts], Iterator[Anomaly]], ...] = (
    lost_writes,
    duplicates,
    phantoms,
    inconsistent_offsets,
    unplaced,
    aborted_reads,
    early_reads,
    torn,
    unfenced,
    consumption,
    skipped,
    went_back,
    out_of_order,
    unreadable,
    stuck,
)


@dataclass
class Finding:
    """One kind of anomaly. Examples are forbidden ones, as long as there are some."""

    kind: Kind
    forbidden: int = 0
    allowed: int = 0
    examples: list[str] = field(default_factory=list)
    allowed_examples: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.forbidden + self.allowed

    @property
    def first(self) -> str:
        return (self.examples or self.allowed_examples)[0]

    def add(self, anomaly: Anomaly) -> None:
        if anomaly.is_allowed:
            self.allowed += 1
        else:
            self.forbidden += 1
        examples = self.allowed_examples if anomaly.is_allowed else self.examples
        if len(examples) < EXAMPLES:
            examples.append(anomaly.text)


@dataclass
class Report:
    findings: dict[Kind, Finding]

    @property
    def is_clean(self) -> bool:
        """Nothing that the settings forbid."""
        return not any(finding.forbidden for finding in self.findings.values())

    def forbidden_kinds(self) -> set[Kind]:
        return {kind for kind, finding in self.findings.items() if finding.forbidden}


def anomalies(history: History) -> Iterator[Anomaly]:
    facts = Facts(history)
    for judge_one in JUDGES:
        yield from judge_one(facts)


def judge(history: History, *, allowed: frozenset[Kind] = frozenset()) -> Report:
    """`allowed`: kinds that are to be told, but not held against the cluster."""
    found: dict[Kind, Finding] = {}
    for anomaly in anomalies(history):
        if anomaly.kind in allowed:
            anomaly = anomaly._replace(is_allowed=True)
        found.setdefault(anomaly.kind, Finding(anomaly.kind)).add(anomaly)
    return Report({kind: found[kind] for kind in Kind if kind in found})
