// The charts of measured.md, from window.cubineryRecords (docs/site/write_records.py).
"use strict";
(() => {
const records = window.cubineryRecords;
// As in the pictures of scripts/draw_latency.py.
const COLOURS = { cubinery: "#1f6feb", FLA: "#d9730d", FlashInfer: "#8250df", FlashQLA: "#1a7f37", alone: "#8b949e" };
const GREY = "#8b949e";
Chart.defaults.color = GREY;
Chart.defaults.borderColor = "rgba(139, 148, 158, 0.25)";
Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
Chart.defaults.maintainAspectRatio = false;
Chart.defaults.animation = false;

const colourOf = name => COLOURS[name.split(" ")[0]] || GREY;
const unique = values => [...new Set(values)];
const canvas = name => document.querySelector(`canvas[data-chart="${name}"]`);
const time = us => us < 1000 ? `${us.toPrecision(3)} us` : `${(us / 1000).toPrecision(3)} ms`;
const count = n => n >= 1024 && n % 1024 === 0 ? `${n / 1024}k` : `${n}`;

function axis(text, more = {}) { return { title: { display: true, text }, ...more }; }

// Sizes: ticks at powers of two.
function sizes(text) {
  return axis(text, {
    type: "logarithmic",
    afterBuildTicks: scale => {
      scale.ticks = [];
      for (let value = 1; value <= scale.max; value *= 2) if (value >= scale.min) scale.ticks.push({ value });
    },
    ticks: { callback: count, autoSkip: true, maxRotation: 0 },
  });
}

// Times: ticks at 1, 2 and 5 of each power of ten.
function times(text) {
  return axis(text, {
    type: "logarithmic",
    afterBuildTicks: scale => {
      scale.ticks = [];
      for (let power = 0.1; power <= scale.max; power *= 10) {
        for (const value of [power, 2 * power, 5 * power]) if (value >= scale.min && value <= scale.max) scale.ticks.push({ value });
      }
    },
    ticks: { callback: us => us < 1000 ? `${+us.toPrecision(1)} us` : `${+us.toPrecision(1) / 1000} ms`, maxRotation: 0 },
  });
}

// A list for each choice, and `draw` with what is chosen.  options: {label: values}
function choices(name, options, draw) {
  const place = document.querySelector(`.chart-choices[data-for="${name}"]`);
  const selects = Object.entries(options).map(([label, values]) => {
    const select = document.createElement("select");
    for (const value of values) select.add(new Option(value));
    const box = document.createElement("label");
    box.append(`${label} `, select);
    place.append(box);
    return select;
  });
  let chart = null;
  const redraw = () => {
    if (chart) chart.destroy();
    chart = new Chart(canvas(name), draw(...selects.map(select => select.value)));
  };
  for (const select of selects) select.onchange = redraw;
  redraw();
}

// ---- Beside other libraries: lines of what was measured at three sizes or more.
function lineOf(row) {
  if (row.op === "prefill") {
    return row.sequences === 1 && row.data === "qwen-bf16" ? `prefill, one sequence, heads ${row.heads}` : null;
  }
  return row.op === "verify" ? `verify, ${row.tokens} tokens each, ${row.data}` : `${row.op}, ${row.data}`;
}

const lines = {};
for (const row of records.peers) {
  const line = lineOf(row);
  if (line) (lines[line] = lines[line] || []).push(row);
}
const drawn = Object.keys(lines).filter(line => unique(lines[line].map(row => row.x)).length >= 3);
drawn.sort((a, b) => b.includes("heads 16, 32") - a.includes("heads 16, 32") || a.localeCompare(b, "en", { numeric: true }));

choices("peers", { "": drawn }, line => {
  const rows = [...lines[line]].sort((a, b) => a.x - b.x);
  const series = name => ({
    label: name,
    data: rows.filter(row => name in row.us).map(row => ({ x: row.x, y: row.us[name] })),
    borderColor: colourOf(name), backgroundColor: colourOf(name), pointRadius: 4,
    borderWidth: name === "cubinery" ? 3 : 2,
  });
  const floor = {
    label: "byte floor", data: rows.filter(row => row.floor).map(row => ({ x: row.x, y: row.floor })),
    borderColor: GREY, backgroundColor: GREY, borderDash: [6, 4], borderWidth: 2, pointRadius: 0,
  };
  const names = unique(rows.flatMap(row => Object.keys(row.us)));
  return {
    type: "line",
    data: { datasets: [...names.map(series), floor] },
    options: {
      interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: { x: sizes(line.startsWith("prefill") ? "tokens" : "requests"), y: times(`time, ${records.gpu}`) },
      plugins: { tooltip: { callbacks: {
        title: items => `${items[0].raw.x} ${line.startsWith("prefill") ? "tokens" : "requests"}`,
        label: item => `${item.dataset.label}: ${time(item.raw.y)}`,
      } } },
    },
  };
});

// ---- Every comparison
new Chart(canvas("ratios"), {
  type: "scatter",
  data: {
    datasets: unique(records.peers.map(row => row.op)).map((op, i) => ({
      label: op,
      data: records.peers.filter(row => row.op === op).map(row => ({ x: row.x, y: row.ratio, row })),
      backgroundColor: ["#1f6feb", "#2a8f2a", "#d9730d", "#8250df"][i % 4] + "b0", pointRadius: 4,
    })),
  },
  options: {
    scales: {
      x: sizes("tokens of a prefill; requests of others"),
      y: axis("fastest other / cubinery", { type: "logarithmic", min: 0.8, ticks: { callback: y => `${y}x`, maxTicksLimit: 8 } }),
    },
    plugins: { tooltip: { callbacks: { label: ({ raw: { row } }) => [
      `${row.op}, heads ${row.heads}, ${row.size}, ${row.data}: ${row.ratio.toFixed(2)}x`,
      ...Object.entries(row.us).map(([name, us]) => `${name}: ${time(us)}`),
    ] } } },
  },
});

// ---- One layer in an engine
choices("engines", { "": unique(records.engines.map(row => row.where)).sort().reverse() }, where => {
  const rows = records.engines.filter(row => row.where === where);
  const bars = (label, key, colour) => ({ label, data: rows.map(row => row[key]), backgroundColor: colour });
  return {
    type: "bar",
    data: {
      labels: rows.map(row => [row.label, ...(row.model ? [row.model] : [])].join(", ").replace(/, Qwen3.5$/, "")),
      datasets: [bars("alone", "alone", COLOURS.alone), bars("with cubinery", "ours", COLOURS.cubinery)],
    },
    options: {
      indexAxis: "y",
      scales: { x: times("time of a layer") },
      plugins: { tooltip: { callbacks: {
        label: item => `${item.dataset.label}: ${time(item.raw)}`,
        footer: items => `${(rows[items[0].dataIndex].alone / rows[items[0].dataIndex].ours).toFixed(2)}x`,
      } } },
    },
  };
});

// ---- What tuning gains
const AXIS = { prefill: "length", conv: "tokens", decode: "states", verify: "states", commit: "states" };
choices("tuned", { Operator: unique(records.tuned.map(row => row.op)).sort((a, b) => (b === "prefill") - (a === "prefill")) }, op => {
  const rows = records.tuned.filter(row => row.op === op);
  const text = features => Object.entries(features).map(([name, value]) => `${name} ${value}`).join(", ");
  return {
    type: "scatter",
    data: {
      datasets: unique(rows.map(row => row.gpu)).map((gpu, i) => ({
        label: gpu,
        data: rows.filter(row => row.gpu === gpu).map(row => ({ x: row.features[AXIS[op]], y: 100 * row.gain, row })),
        backgroundColor: ["#1f6feb", "#2a8f2a"][i % 2] + "b0", pointRadius: 5,
      })),
    },
    options: {
      scales: { x: sizes(AXIS[op]), y: axis("less time than the default, %", { beginAtZero: true }) },
      plugins: { tooltip: { callbacks: { label: ({ raw: { row } }) => [
        `${text(row.features)}: ${time(row.us)}, ${(100 * row.gain).toFixed(1)} % less`, row.chosen,
      ] } } },
    },
  };
});
})();
