// Charts of the history, with marks for what was decided.
/* global uPlot */
import { clock, some } from "./data.js";

/** Series in a chart, at most: the largest; the rest is one series. */
const MOST = 7;
const HEIGHT = 200;

const charts = new Map();
let marks = [];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The colour of the series with this number. */
export function seriesColour(at) {
  return `--c${at % 8}`;
}

/** What the marks are: events with `ms`, `kind` and `text`. */
export function setMarks(events) {
  marks = events;
}

/** Draws the marks, and says beneath the chart what the one next to the cursor is. */
function markPlugin(note) {
  return {
    hooks: {
      draw: (chart) => {
        const { ctx, bbox } = chart;
        ctx.save();
        ctx.strokeStyle = colour("--mark");
        ctx.fillStyle = colour("--mark");
        ctx.lineWidth = devicePixelRatio;
        ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
        for (const mark of marks) {
          const x = Math.round(chart.valToPos(mark.ms / 1000, "x", true));
          if (x < bbox.left || x > bbox.left + bbox.width) continue;
          ctx.beginPath();
          ctx.moveTo(x, bbox.top);
          ctx.lineTo(x, bbox.top + bbox.height);
          ctx.stroke();
          const size = 4 * devicePixelRatio;
          ctx.beginPath();
          ctx.moveTo(x - size, bbox.top);
          ctx.lineTo(x + size, bbox.top);
          ctx.lineTo(x, bbox.top + 1.6 * size);
          ctx.fill();
        }
        ctx.restore();
      },
      setCursor: (chart) => {
        const left = chart.cursor.left;
        const near = (mark) => Math.abs(chart.valToPos(mark.ms / 1000, "x") - left);
        const found = left >= 0 ? marks.filter((mark) => near(mark) < 8) : [];
        const texts = found.slice(-3).map((mark) => `${clock(mark.ms)} ${mark.text}`);
        note.textContent = texts.join(" · ");
      },
    },
  };
}

/** Sums from the first series up: what a stacked chart draws. Missing values count as nothing. */
function stacked(series) {
  const sums = [];
  let below = null;
  for (const { values } of series) {
    below = values.map((value, at) => (below ? below[at] : 0) + (value || 0));
    sums.push(below);
  }
  return sums;
}

/**
 * Shows series in the chart with this id. Each has `label`, `values`, and perhaps `colour` (the name of a variable)
 * and `dash`. They are stacked, the first at the bottom, or lines.
 */
export function show(id, times, series, { isStacked = false, from }) {
  const place = document.getElementById(id);
  const drawn = isStacked ? stacked(series).reverse() : series.map((one) => one.values);
  const shown = isStacked ? [...series].reverse() : series;
  const shape = JSON.stringify([shown.map((one) => [one.label, one.colour, one.dash]), isDark()]);
  let known = charts.get(id);
  if (!known || known.shape !== shape) {
    known?.chart.destroy();
    const raw = { shown };
    known = { shape, raw, chart: begin(place, id, raw, isStacked, [times, ...drawn]) };
    charts.set(id, known);
    new ResizeObserver(() => known.chart.setSize({ width: width(place), height: HEIGHT })).observe(place);
  }
  known.raw.shown = shown;
  known.chart.setData([times, ...drawn], false);
  const last = times.length ? times[times.length - 1] : Date.now() / 1000;
  known.chart.batch(() => {
    known.chart.setScale("x", { min: last - from, max: last });
  });
  const now = series.map((one) => `${one.label}: ${some(one.values[one.values.length - 1])}`);
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", `Chart. Now ${now.join(", ") || "nothing"}`);
}

function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function width(place) {
  return Math.max(240, place.clientWidth);
}

function begin(place, id, raw, isStacked, data) {
  const one = (series, at) => {
    const stroke = colour(series.colour || seriesColour(at));
    return {
      label: series.label,
      stroke,
      width: isStacked ? 1 : 2,
      dash: series.dash,
      fill: isStacked ? stroke : undefined,
      points: { show: false },
      spanGaps: false,
      // what it is, and not where it is drawn
      value: (chart, value, seriesAt, at) => {
        const values = raw.shown[seriesAt - 1]?.values || [];
        return some(values[at ?? values.length - 1]);
      },
    };
  };
  const time = (seconds) => clock(seconds * 1000).slice(0, seconds % 60 ? 8 : 5);
  const axis = { font: "12px system-ui, sans-serif", stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 } };
  const options = {
    width: width(place),
    height: HEIGHT,
    tzDate: (time) => uPlot.tzDate(new Date(time * 1000), "Etc/UTC"),
    legend: { live: true },
    cursor: { drag: { x: false, y: false }, points: { show: !isStacked } },
    scales: { x: { time: true, auto: false }, y: { range: (chart, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    axes: [{ ...axis, values: (chart, values) => values.map(time), space: 70 }, { ...axis, size: 56, values: (chart, values) => values.map(some) }],
    series: [{ label: "UTC", value: (chart, value) => clock((value ?? chart.data[0].at(-1) ?? 0) * 1000) }, ...raw.shown.map(one)],
    plugins: [markPlugin(document.getElementById(`${id}-mark`))],
  };
  place.replaceChildren();
  return new uPlot(options, data, place);
}

/** The largest of several series of a group, and one for all others. */
export function largest(history, group, figure, names) {
  const all = names.map((name, at) => ({ label: name, colour: seriesColour(at), values: history.values(group, name, figure) }));
  const size = (series) => series.values.reduce((sum, value) => sum + (value || 0), 0);
  if (all.length <= MOST) return all;
  all.sort((a, b) => size(b) - size(a));
  const rest = all.slice(MOST);
  const others = history.times.map((_, at) => rest.reduce((sum, one) => sum + (one.values[at] || 0), 0));
  return [...all.slice(0, MOST), { label: "others", values: others, colour: "--c6" }];
}
