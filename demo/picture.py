"""Records and duplicates over time, with the moments of trouble: as a picture, and as lines of text."""

from collections.abc import Sequence
from pathlib import Path

Noted = Sequence[tuple[float, int, dict[str, tuple[int, int]]]]
Troubles = Sequence[tuple[float, str]]

COLOURS = {"plain": "#c0392b", "semel": "#1e8449"}
BARS = " ▁▂▃▄▅▆▇█"
COLUMNS = 64


def draw(noted: Noted, troubles: Troubles, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 6), sharex=True, height_ratios=[3, 2])
    seconds = [at_s for at_s, _, _ in noted]
    above.plot(seconds, [sent for _, sent, _ in noted], color="#888888", linestyle="--", label="sent")
    for way, colour in COLOURS.items():
        above.plot(seconds, [counts[way][0] for _, _, counts in noted], color=colour, label=f"in topic {way}")
        below.plot(seconds, [counts[way][1] for _, _, counts in noted], color=colour, label=way)
    for number, (at_s, what) in enumerate(troubles, 1):
        for axes in (above, below):
            axes.axvline(at_s, color="#444444", linewidth=0.8, linestyle=":")
        above.text(at_s, above.get_ylim()[1], str(number), ha="center", va="bottom")
        above.plot([], [], " ", label=f"{number}: {what}")
    above.set_ylabel("records")
    above.legend(loc="upper left", fontsize=8)
    below.set_ylabel("duplicates")
    below.set_xlabel("seconds")
    below.legend(loc="upper left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def lines(noted: Noted, troubles: Troubles) -> list[str]:
    """One line per way: how many duplicates there were when; and one with the numbers of the troubles."""
    end_s = max(noted[-1][0], 0.001)
    most = max(counts[way][1] for _, _, counts in noted for way in COLOURS)
    drawn = []
    for way in COLOURS:
        bars = [0] * COLUMNS
        for at_s, _, counts in noted:
            bars[min(int(at_s / end_s * COLUMNS), COLUMNS - 1)] = counts[way][1]
        for column in range(1, COLUMNS):
            bars[column] = max(bars[column], bars[column - 1])
        drawn.append(
            f"  {way:<8}|" + "".join(BARS[-(-value * 8 // most) if most else 0] for value in bars) + f"| {bars[-1]:,}"
        )
    marks = [" "] * COLUMNS
    for number, (at_s, _) in enumerate(troubles, 1):
        marks[min(int(at_s / end_s * COLUMNS), COLUMNS - 1)] = str(number)
    return ["  duplicates over time", *drawn, f"  {'':<8} " + "".join(marks)]
