"""The pictures beside the tables: how many times as good as the other, and how costs grow.

A bar to the right of 1 is better than what it stands beside, whether more or less of the figure is wanted; its goal is
a black mark. Lines of growth have the lowest point of their last hundredfold at 1: one that ends in the grey band is
flat.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from curves import Curve, size_text
from measured import Measured, number

matplotlib.use("Agg")
from matplotlib import pyplot

_REACHED, _MISSED, _NO_GOAL = "#3a9a5b", "#d1495b", "#8d99ae"
_COLOURS = ("#1f6fb4", "#e07a1f", "#3a9a5b", "#8e5ea2", "#c0392b", "#5f6a6a")
_FARTHEST = 64.0
_FLATTEST = 2.2
_SMALL: dict[str, Any] = {"va": "center", "fontsize": 8, "annotation_clip": False}


def bars(title: str, rows: Sequence[Measured], path: Path) -> None:
    """One bar a row that has something to stand beside."""
    shown = [row for row in rows if row.ratio]
    if not shown:
        return
    figure, axes = pyplot.subplots(figsize=(12, 1.5 + 0.34 * len(shown)), layout="constrained")
    betters = [_times_as_good(row, row.ratio or 1.0) for row in shown]
    lowest = min(0.5, *(better * 0.8 for better in betters))
    highest = min(max(2.0, *betters), _FARTHEST)
    highest = max([highest, *(_times_as_good(row, row.goal) for row in shown if row.goal)])
    for place, (row, better) in enumerate(zip(shown, betters, strict=True)):
        end = min(better, _FARTHEST)
        colour = {None: _NO_GOAL, True: _REACHED, False: _MISSED}[row.is_reached]
        axes.barh(place, end - 1, left=1, height=0.7, color=colour)
        if row.goal:
            goal = _times_as_good(row, row.goal)
            axes.plot([goal, goal], [place - 0.42, place + 0.42], color="black", linewidth=2.2)
        axes.annotate(f"{better:.2g}x", (1.02, place), xycoords=("axes fraction", "data"), **_SMALL)
        text = f"{number(row.ours)} beside {number(row.theirs or 0.0)} {row.unit}"
        axes.annotate(text, (1.08, place), xycoords=("axes fraction", "data"), **_SMALL)
    several = len({row.beside for row in shown}) > 1
    names = [f"{row.name}  ({row.beside})" if several and row.beside != "kafka" else row.name for row in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlim(lowest, highest * 1.1)
    ticks = [2.0**power for power in range(math.ceil(math.log2(lowest)), math.floor(math.log2(highest)) + 1)]
    axes.set_xticks(ticks, [f"{tick:g}x" for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.set_xlabel("how many times as good: right of 1x semel is better")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    _legend(axes)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _legend(axes: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = [
        Patch(color=_REACHED, label="goal reached"),
        Patch(color=_MISSED, label="goal missed"),
        Patch(color=_NO_GOAL, label="no goal"),
        Line2D([], [], color="black", linewidth=0, marker="|", markersize=12, markeredgewidth=2.2, label="goal"),
    ]
    axes.legend(handles=marks, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, fontsize=8)


def _times_as_good(row: Measured, ratio: float) -> float:
    return 1 / ratio if row.less_is_better else ratio


def lines(title: str, curves: Sequence[Curve], path: Path) -> None:
    """A panel for each thing that grows; costs as multiples of the first point's."""
    panels: dict[str, list[Curve]] = {}
    for curve in curves:
        panels.setdefault(curve.against, []).append(curve)
    columns = min(len(panels), 2)
    rows = math.ceil(len(panels) / columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(7 * columns, 4.3 * rows), layout="constrained", squeeze=False
    )
    for axes, (against, shown) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, against, shown)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    figure.suptitle(f"{title} (solid: CPU of the broker, dotted: round trip)", fontsize=12, fontweight="bold")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _panel(axes: Any, against: str, shown: Sequence[Curve]) -> None:
    goal = shown[0].goal
    axes.axhspan(0, goal, color="black", alpha=0.07, linewidth=0)
    axes.axhline(1, color="black", linewidth=0.6)
    kinds = list(dict.fromkeys(curve.what for curve in shown))
    ends = [goal * 1.25, *(1.15 * curve.points[-1].cost / max(curve.lowest.cost, 1e-9) for curve in shown)]
    for curve in shown:
        lowest = max(curve.lowest.cost, 1e-9)
        costs = [point.cost / lowest for point in curve.points]
        is_cpu = "CPU" in curve.unit
        label = f"{curve.what}: {number(curve.points[0].cost)} to {number(curve.points[-1].cost)} us of CPU"
        axes.plot(
            [point.size for point in curve.points],
            costs,
            "-" if is_cpu else ":",
            marker="o" if is_cpu else None,
            markersize=4,
            linewidth=1.8 if is_cpu else 1.2,
            color=_COLOURS[kinds.index(curve.what) % len(_COLOURS)],
            label=label if is_cpu else None,
        )
    sizes = sorted({point.size for curve in shown for point in curve.points})
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(sizes, [size_text(size) for size in sizes], fontsize=8)
    # What is dear at first and cheap later leaves the picture: how a line ends is what matters.
    axes.set_ylim(0, max([*ends, _FLATTEST]))
    axes.set_xlabel(against)
    axes.set_ylabel("cost, lowest of the last hundredfold = 1")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7.5, loc="lower left", framealpha=0.85)
    axes.set_title(f"against {against}: flat where it ends in the grey (up to {goal:g})", loc="left", fontsize=9.5)
