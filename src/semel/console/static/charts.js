// Lines over time, by uPlot; redrawn with the colours of the theme.
import { kept } from "./dom.js";
import { short } from "./format.js";
import uPlot from "./vendor/uplot.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function draw(element, { series, unit }) {
  const [times, values] = series;
  const theme = colour("--accent") + colour("--bg");
  if (element.plot && element.theme === theme) {
    element.plot.setData([times.map((ms) => ms / 1000), values]);
    return;
  }
  element.plot?.destroy();
  element.theme = theme;
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
    font: "12px system-ui, sans-serif",
  };
  const options = {
    width: Math.max(element.clientWidth, 120),
    height: 170,
    padding: [10, 12, 0, 0],
    cursor: { y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { y: { range: (_, least, most) => [0, Math.max(most * 1.1, 1)] } },
    axes: [
      { ...axis, values: [[3600, "{HH}:{mm}", null, null, null, null, null, null, 1], [60, "{HH}:{mm}", null, null, null, null, null, null, 1], [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]], space: 80, size: 28 },
      { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => short(tick)) },
    ],
    series: [{}, { label: unit, stroke: colour("--accent"), width: 1.8, fill: colour("--accent-soft"), points: { show: false } }],
  };
  element.plot = new uPlot(options, [times.map((ms) => ms / 1000), values], element);
  if (!element.watching) {
    element.watching = new ResizeObserver(() => {
      if (element.isConnected && element.clientWidth) element.plot.setSize({ width: element.clientWidth, height: 170 });
    });
    element.watching.observe(element);
  }
}

export function lines(label, unit, series) {
  return kept("chart-" + label, { class: "chart", role: "img", "aria-label": `${label}: ${unit} over time` }, { series, unit }, draw);
}
