// The report that the page shows, and what its numbers are called.
'use strict';

const report = JSON.parse(document.getElementById('report').textContent);
const settings = report.settings;

// ---- Words and numbers ----

const text_of = (values) => Object.entries(values).map(([name, value]) => `${name}=${value}`).join(';');
const number = (value, digits) => (value == null ? '' : value.toFixed(digits));
const percent = (share) => (share == null ? null : share * 100);
const percent_text = (share) => `${number(percent(share), 1)}\u00a0%`;
const us = (ms) => (ms == null ? null : ms * 1e3);
const us_text = (ms) => `${number(us(ms), ms < .1 ? 2 : 1)} µs`;
const tb_text = (bytes_per_ms) => `${number(bytes_per_ms / 1e9, 2)} TB/s`;
const spread = (ms) => (ms && ms.median > 0 ? (ms.p90 - ms.p10) / ms.median : null);
const correct = (setting) => setting.measurements.filter((m) => m.verdict === 'correct');
const rejected = (setting) => setting.measurements.filter((m) => m.verdict !== 'correct');
const unique = (list) => [...new Set(list)];
const sum = (list) => list.reduce((a, b) => a + b, 0);
const same = (a, b) => a != null && b != null && text_of(a) === text_of(b);
const differing = (a, b) => Object.keys(a).filter((name) => a[name] !== b?.[name]);
const plural = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;

// Of a sorted or unsorted list, not empty.
function median(list) {
  const sorted = [...list].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function group_by(list, key_of) {
  const groups = new Map();
  for (const item of list) {
    const key = key_of(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

// The result or, where there is none yet, the best so far.
function best(setting) {
  if (setting.result) return setting.result;
  return correct(setting).reduce((a, b) => (a && a.ms.median <= b.ms.median ? a : b), null);
}
const time_of = (setting) => best(setting)?.ms.median;
const keeps_default = (setting) => setting.result && same(setting.result.configuration, setting.result.otherwise);

function state(setting) {
  if (!setting.result) return 'no result yet';
  if (setting.stale == null) return '';
  return setting.stale ? `stale: ${setting.stale_because}` : 'current';
}

// "a=1;b=2" as {a: '1', b: '2'}.
const fields_of = (text) => Object.fromEntries(text.split(';').map((part) => {
  const [name, ...value] = part.split('=');
  return [name, value.join('=')];
}));
const bucket_text = (setting) => setting.bucket.replaceAll(';', ' ');

// A place: one GPU and one compiler.  Its label says of them what differs, and leaves out the memory ("80GB HBM3") of a
// GPU where another part of the name tells it from the others.
const place_of = (setting) => JSON.stringify([setting.gpu, setting.nvrtc]);
const gpu_names = unique(settings.map((s) => s.gpu.name || s.gpu.arch));
const vendor = gpu_names.every((name) => name.startsWith('NVIDIA ')) ? 'NVIDIA ' : '';
const brief = (name) => name.slice(vendor.length).replace(/ \d+GB.*/, '');
const short_name = (name) => (gpu_names.filter((other) => brief(other) === brief(name)).length > 1 ? name : brief(name));
const places = [...group_by(settings, place_of)].map(([key, [{gpu, nvrtc}]]) => ({key, gpu, nvrtc}));
for (const place of places) {
  const namesakes = places.filter((other) => other.gpu.name === place.gpu.name);
  const tells = (value) => unique(namesakes.map(value)).length > 1;
  place.label = short_name(place.gpu.name || place.gpu.arch) +
      (place.gpu.mig ? `, MIG ${place.gpu.mig}` : '') +
      (tells((other) => other.gpu.sm_count) ? `, ${place.gpu.sm_count} SMs` : '') +
      (tells((other) => other.nvrtc) ? `, NVRTC ${place.nvrtc}` : '');
}
const label_of = (setting) => places.find((place) => place.key === place_of(setting)).label;
const operators = unique(settings.map((s) => s.op));
const kind = (list, value) => `var(--kind-${Math.min(list.indexOf(value), 5)})`;

// The fewest fields that tell the problems of an operator apart: each next one splits most of those that are still
// together.
const telling = new Map();
function telling_fields(op) {
  if (telling.has(op)) return telling.get(op);
  const problems = unique(settings.filter((s) => s.op === op).map((s) => s.problem)).map(fields_of);
  const names = unique(problems.flatMap(Object.keys));
  const chosen = [];
  const classes = (fields) => group_by(problems, (p) => fields.map((name) => p[name]).join(';')).size;
  while (classes(chosen) < problems.length) {
    const counts = names.map((name) => classes([...chosen, name]));
    chosen.push(names[counts.indexOf(Math.max(...counts))]);
  }
  const fields = names.filter((name) => chosen.includes(name));
  telling.set(op, fields);
  return fields;
}
const problem_text = (setting) => {
  const fields = fields_of(setting.problem);
  return telling_fields(setting.op).map((name) => `${name}=${fields[name] ?? ''}`).join('; ');
};

// ---- Floors ----

// What no launch on a place gets below, as far as this report knows: the time of the fastest launch, and the bytes at
// the rate of a copy, or else at the best rate that was seen.
const floors = new Map(places.map(({key}) => {
  const here = settings.filter((s) => place_of(s) === key && time_of(s));
  const times = here.flatMap((s) => [time_of(s), ...correct(s).map((m) => m.ms.median)]);
  const rates = here.filter((s) => s.bytes).map((s) => s.bytes / time_of(s));
  const given = report.copy_bytes_per_second ? report.copy_bytes_per_second / 1e3 : null;
  return [key, {launch: Math.min(...times), rate: given ?? (rates.length ? Math.max(...rates) : null)}];
}));
const rate_name = report.copy_bytes_per_second ? 'copy rate' : 'best rate in this report';
function bytes_floor(setting) {
  const {rate} = floors.get(place_of(setting));
  return setting.bytes && rate ? setting.bytes / rate : null;
}
// How many times its floor a setting takes.
function over_floor(setting) {
  const bytes = bytes_floor(setting);
  return bytes && time_of(setting) ? time_of(setting) / Math.max(bytes, floors.get(place_of(setting)).launch) : null;
}
const share_of_rate = (setting) => (bytes_floor(setting) && time_of(setting) ? bytes_floor(setting) / time_of(setting) : null);
