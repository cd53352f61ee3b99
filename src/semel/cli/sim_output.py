"""What `semel sim` tells: the timeline of one run, or how far an exploration is, what it covered and what it found."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from semel.cli.output import Cell, Output, count_text, duration_text
from semel.sim.world.coverage import covered
from semel.sim.world.exploring import Progress
from semel.sim.world.findings import Violation
from semel.sim.world.schedule import CLIENTS, Schedule, drawn
from semel.sim.world.shrinking import replay_options
from semel.sim.world.simulation import Run
from semel.sim.world.timeline import timeline

_SHOWN_VIOLATIONS = 10

# -- one run


def show_run(run: Run, output: Output, *, is_brief: bool) -> None:
    schedule = run.schedule
    output.facts(
        [
            ("seed", schedule.seed),
            ("clients", _clients(schedule)),
            ("strikes", "; ".join(f"{strike.number} {strike.kind.value}" for strike in schedule.strikes)),
            ("at work for", f"{schedule.seconds:g} s"),
        ]
    )
    output.line()
    for line in timeline(run):
        if line.is_about_the_world:
            output.line(output.paint(str(line), "red" if line.who == "check" else "yellow"))
        elif not is_brief:
            output.line(str(line))
    output.line()
    sent = sum(1 for line in run.history.operations if type(line).__name__ == "Send")
    output.line(f"{count_text(sent, 'record')} sent in {duration_text(run.virtual_s * 1000)} of virtual time.")
    show_violations(run.violations, output)


def _clients(schedule: Schedule) -> str:
    kinds = [f"{getattr(schedule.load, name)} {name.replace('_', ' ')}" for name in CLIENTS]
    through = ", through proxies" if schedule.is_proxied else ""
    return ", ".join(kind for kind in kinds if not kind.startswith("0")) + through


def show_violations(violations: Sequence[Violation], output: Output) -> None:
    if not violations:
        output.line(output.paint("Every promise was kept.", "green"))
        return
    output.line(output.paint(f"{count_text(len(violations), 'broken promise')}:", "red"))
    for violation in violations[:_SHOWN_VIOLATIONS]:
        output.line(f"  {output.paint(violation.kind, 'bold')}: {violation.text}")
    if len(violations) > _SHOWN_VIOLATIONS:
        output.line(f"  and {len(violations) - _SHOWN_VIOLATIONS} more")


def run_document(run: Run) -> dict[str, object]:
    return {
        "seed": run.schedule.seed,
        "digest": run.digest(),
        "virtual_s": round(run.virtual_s, 3),
        "violations": [violation._asdict() for violation in run.violations],
        "coverage": dict(sorted(run.coverage.items())),
        "timeline": [{"at_s": round(line.at_s, 3), "who": line.who, "text": line.text} for line in timeline(run)],
    }


# -- an exploration


def progress_note(progress: Progress) -> str:
    parts = ", ".join(
        f"{part.seen}/{part.total} {part.name}" for part in covered(progress.coverage, progress.nodes, progress.voters)
    )
    return f"{progress.hours_per_second:.3f} simulated hours a second; {parts}"


def show_exploration(seeds: range, progress: Progress, shortest: Schedule | None, output: Output) -> None:
    rate = progress.runs / progress.real_s if progress.real_s else 0.0
    output.line(
        f"{count_text(progress.runs, 'seed')} of {_told(seeds)} in {duration_text(progress.real_s * 1000)}: "
        f"{rate:.1f} a second, {progress.hours_per_second:.3f} simulated hours a second."
    )
    output.line()
    rows = []
    for part in covered(progress.coverage, progress.nodes, progress.voters):
        unseen = "; ".join(part.unseen[:6]) + (" ..." if len(part.unseen) > 6 else "")
        seen = Cell(f"{part.seen} of {part.total}", "green" if not part.unseen else "yellow")
        rows.append([part.name, seen, unseen])
    output.table(["coverage", "seen", "not seen"], rows)
    output.line()
    if progress.found is None:
        output.line(output.paint("Every promise was kept.", "green"))
        return
    output.line(f"Seed {output.paint(str(progress.found.seed), 'bold')} has found something.")
    show_violations(progress.found.violations, output)
    output.line()
    nodes = f" --nodes {progress.nodes}" if progress.nodes > 1 else ""
    output.line(f"Replay it with: semel sim --seed {progress.found.seed}{nodes}")
    if shortest is not None:
        output.line(f"or a shorter part of it: {_command(shortest)}")


def _command(schedule: Schedule) -> str:
    return shlex.join(["semel", "sim", *replay_options(schedule, drawn(schedule.seed, schedule.nodes))])


def _told(seeds: range) -> str:
    return f"{seeds[0]}..{seeds[-1]}"


def exploration_document(seeds: range, progress: Progress, shortest: Schedule | None) -> dict[str, object]:
    found = progress.found
    return {
        "seeds": _told(seeds),
        "runs": progress.runs,
        "real_s": round(progress.real_s, 3),
        "simulated_hours_per_second": round(progress.hours_per_second, 6),
        "coverage": {
            part.name: {"seen": part.seen, "total": part.total, "unseen": part.unseen}
            for part in covered(progress.coverage, progress.nodes, progress.voters)
        },
        "found": None if found is None else found.seed,
        "violations": [] if found is None else [violation._asdict() for violation in found.violations],
        "replay": None if shortest is None else _command(shortest),
    }
