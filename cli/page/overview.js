// The overview: the first screen, what is shown of the settings, floors, two GPUs, the table.

// ---- The first screen: the gain by operator and GPU ----

const bin_ends = [.01, .02, .05, .1, .2, Infinity];  // of gains
const bin_names = ['none', '<1 %', '<2', '<5', '<10', '<20', '20+'];

function bins(list) {
  const counts = bin_names.map(() => 0);
  for (const s of list) counts[keeps_default(s) ? 0 : 1 + bin_ends.findIndex((end) => s.result.gain < end)] += 1;
  const most = Math.max(...counts);
  return element('div', {class: 'bins', role: 'img',
                         'aria-label': counts.map((count, i) => `gain ${bin_names[i]}: ${count}`).join(', ')},
                 ...counts.map((count, i) => element('div', {title: `gain ${bin_names[i]}: ${plural(count, 'setting')}`},
                     count ? String(count) : '', element('i', {style: `height: ${count / most * 60}%`}),
                     element('span', {}, bin_names[i]))));
}

function gain_card(row) {
  const list = settings.filter((s) => s.op === row.op && place_of(s) === JSON.stringify([row.gpu, row.nvrtc]));
  const decided = list.filter((s) => s.result);
  const floor = list.map(over_floor).filter((ratio) => ratio != null);
  const title = element('button', {type: 'button', title: 'Show these settings alone'}, `${row.op} on ${label_of(list[0])}`);
  title.addEventListener('click', () => {
    Object.assign(scope, {op: row.op, place: place_of(list[0])});
    show_scope();
    show_parts();
    document.getElementById('scope').scrollIntoView();
  });
  const parts = [element('h4', {}, title)];
  if (decided.length) {
    parts.push(
        element('div', {class: 'big'}, percent_text(row.gain_median)),
        element('div', {}, 'less time than the default in the median,'),
        element('div', {}, 'at most ', element('strong', {}, percent_text(row.gain_greatest)),
                `; ${row.keep_default} of ${row.decided} keep it`));
  }
  if (decided.length < list.length) {
    parts.push(element('div', {}, `${list.length - decided.length} of ${plural(list.length, 'setting')} without a result yet`));
  }
  if (floor.length) {
    parts.push(element('div', {class: 'dim'}, `${number(median(floor), 2)} times its floor in the median`));
  }
  if (decided.length) parts.push(bins(decided));
  return element('div', {class: 'card pad'}, ...parts);
}

function show_summary() {
  const measurements = sum(settings.map((s) => s.measurements.length));
  const decided = settings.filter((s) => s.result).length;
  const stale = settings.filter((s) => s.stale).length;
  document.getElementById('summary').textContent =
      `${plural(settings.length, 'setting')}, ${decided} with a result` + (stale ? `, ${stale} stale` : '') +
      `; ${plural(measurements, 'measurement')}; ${gpu_names.join(', ')}; cubinery ${report.cubinery}`;
  document.getElementById('damaged').append(...report.damaged.map(
      (line) => element('p', {}, `Passed over: ${line.path}:${line.line}: ${line.what}`)));
  document.getElementById('cards').append(...report.summary.map(gain_card));
}

// ---- What is shown of them ----

const scope = {op: '', place: '', metric: 'gain'};
const in_scope = () => settings.filter((s) => (!scope.op || s.op === scope.op) && (!scope.place || place_of(s) === scope.place));

function choice(title, name, options, changed) {
  const select = element('select', {}, ...options.map(([value, text]) => element('option', {value}, text)));
  select.value = scope[name];
  select.addEventListener('change', () => {
    scope[name] = select.value;
    changed();
  });
  return element('label', {}, title, select);
}

function show_scope() {
  const box = document.getElementById('scope');
  box.replaceChildren();
  const all = (list) => [['', 'all'], ...list];
  if (operators.length > 1) box.append(choice('Operator', 'op', all(operators.map((op) => [op, op])), show_parts));
  if (places.length > 1) box.append(choice('GPU', 'place', all(places.map((p) => [p.key, p.label])), show_parts));
  box.append(choice('Color', 'metric', metrics().map((m) => [m.name, m.title]), show_parts));
}

// ---- Against the floors ----

function draw_roofline(canvas, list) {
  const {launch, rate} = floors.get(place_of(list[0]));
  const shown = unique(list.map((s) => s.op)).map((op) => points(op, `kind-${Math.min(operators.indexOf(op), 5)}`,
      list.filter((s) => s.op === op).map((s) => ({x: s.bytes / 1e6, y: us(time_of(s)), setting: s}))));
  const xs = list.map((s) => s.bytes / 1e6);
  const knee = launch * rate / 1e6;
  const line = [Math.min(...xs, knee), knee, Math.max(...xs, knee)].map(
      (x) => ({x, y: us(Math.max(launch, x * 1e6 / rate))}));
  const floor = {label: 'floor', type: 'line', data: line, borderColor: color('floor'), borderWidth: 1.5, borderDash: [6, 4],
                 radius: 0, hoverRadius: 0, hitRadius: 0, pointStyle: 'line', is_floor: true};
  draw(canvas, 'scatter', [...shown, floor], {
    x: log_axis('MB that a launch must move'), y: log_axis('µs'),
    tooltip: ({raw}) => `${raw.setting.op} ${bucket_text(raw.setting)}: ${us_text(time_of(raw.setting))}, ` +
        `${number(over_floor(raw.setting), 2)} times its floor`});
}

function show_roofline(list) {
  const groups = [...group_by(list.filter((s) => s.bytes && time_of(s)), place_of).values()];
  const box = document.getElementById('roofline');
  if (groups.length === 0) return box.replaceChildren();
  const cards = groups.map((members) => {
    const {launch, rate} = floors.get(place_of(members[0]));
    const {box: one, canvas} = chart_card(
        `${label_of(members[0])}: launch ${us_text(launch)}, ${rate_name} ${tb_text(rate)}`, 'large');
    return {one, draw: () => draw_roofline(canvas, members)};
  });
  box.replaceChildren(
      element('h2', {}, 'How far from the floor'),
      element('p', {class: 'dim'}, `Time against the bytes that a launch must at least move. The floor is the fastest launch in ` +
          `this report or, where that takes longer, the bytes at the ${rate_name}. A point leads to its setting.`),
      element('div', {class: 'grid', style: '--least: 480px; --fill: auto-fit'}, ...cards.map(({one}) => one)));
  cards.forEach((one) => one.draw());
}

// ---- Two GPUs side by side ----

const key_of = (s) => [s.op, s.problem, s.bucket].join('|');
let sides = null;  // places: times of the first over those of the second

function pairs_of(first, second) {
  const there = new Map(settings.filter((s) => place_of(s) === second && time_of(s)).map((s) => [key_of(s), s]));
  return settings.filter((s) => place_of(s) === first && time_of(s) && there.has(key_of(s)))
      .map((s) => ({a: s, b: there.get(key_of(s)), ratio: time_of(s) / time_of(there.get(key_of(s)))}));
}

// A point for each setting, on a logarithmic axis that all rows share.
function strip(pairs, least, most) {
  const x = (ratio) => Math.log(ratio / least) / Math.log(most / least) * 100;
  const ticks = [1, .5, 2, .2, 5, .1, 10, .8, 1.2, 1.5, .67, .9, 1.1, 1.3, 1.4, 3, .33]  // those that there is room for
      .filter((tick) => tick > least && tick < most)
      .reduce((taken, tick) => (taken.some((other) => Math.abs(x(other) - x(tick)) < 9) ? taken : [...taken, tick]), []);
  const at = (value) => `${value.toFixed(2)}%`;
  return svg('svg', {class: 'strip', role: 'img', 'aria-label': 'ratio of each setting'},
             ...ticks.flatMap((tick) => [
               svg('line', {x1: at(x(tick)), x2: at(x(tick)), y1: 0, y2: 22, class: tick === 1 ? 'one' : ''}),
               svg('text', {x: at(x(tick)), y: 33, 'text-anchor': 'middle'}, String(tick))]),
             ...pairs.map(({a, ratio}, i) => svg('a', {href: `#${a.id}`},
               svg('title', {}, `${bucket_text(a)}; ${problem_text(a)}: ${number(ratio, 2)}`),
               svg('circle', {cx: at(x(ratio)), cy: 5 + (i * 5) % 13, r: 3.5}))));
}

function show_gpus() {
  const box = document.getElementById('gpus');
  const possible = places.flatMap((a) => places.filter((b) => b !== a && pairs_of(a.key, b.key).length).map((b) => [a, b]));
  if (possible.length === 0) return box.replaceChildren();
  // First, the slower one above the faster one.
  sides ??= possible.map((pair) => ({pair, at: median(pairs_of(pair[0].key, pair[1].key).map((p) => p.ratio))}))
      .reduce((a, b) => (b.at > a.at ? b : a)).pair;
  const select = (i) => {
    const made = element('select', {'aria-label': i ? 'over the times of' : 'times of'}, ...places.map((place) =>
        element('option', {value: place.key, selected: place === sides[i] ? '' : null}, place.label)));
    made.addEventListener('change', () => {
      const chosen = places.find((place) => place.key === made.value);
      sides = i ? [chosen === sides[0] ? sides[1] : sides[0], chosen] : [chosen, chosen === sides[1] ? sides[0] : sides[1]];
      show_gpus();
    });
    return made;
  };
  const pairs = pairs_of(sides[0].key, sides[1].key);
  const ratios = pairs.map((p) => p.ratio);
  const least = Math.min(.95, ...ratios) / 1.03;
  const most = Math.max(1.05, ...ratios) * 1.03;
  const rows = [...group_by(pairs, (p) => p.a.op)].map(([op, list]) => ({op, list, ratios: list.map((p) => p.ratio)}));
  const choices = (row) => row.list.filter(({a, b}) => same(best(a).configuration, best(b).configuration)).length;
  const table = sortable([
    text_column('Operator', (row) => row.op, {short: true}),
    number_column('settings on both', (row) => row.list.length, 0),
    number_column('median', (row) => median(row.ratios), 2),
    number_column('least', (row) => Math.min(...row.ratios), 2),
    number_column('greatest', (row) => Math.max(...row.ratios), 2),
    number_column('same choice', choices, 0, 'Settings with the same configuration on both'),
    {title: 'Each setting', value: () => null, text: (row) => strip(row.list, least, most), long: true},
  ], rows);
  box.replaceChildren(
      element('h2', {}, 'Two GPUs side by side'),
      element('div', {class: 'bar dim'}, 'Times of', select(0), 'over the times of', select(1), 'for the settings that both have.'),
      pairs.length ? card(table) : element('p', {}, 'They have no setting in common.'));
}

// ---- The table of settings ----

// Of a configuration what is not as in another: "warps 2 → 4".
function changes(from, to) {
  return differing(to, from).flatMap((name, i) => [...(i ? [', '] : []), `${name} ${from[name] ?? '-'} → `,
                                                   element('b', {}, String(to[name]))]);
}

function setting_columns(list) {
  const columns = [{title: 'Bucket', value: (s) => s.bucket, long: true, text: (s) => link(s, bucket_text(s))}];
  const add_if_differs = (title, value, more) => {
    if (unique(list.map(value)).length > 1) columns.push(text_column(title, value, more));
  };
  add_if_differs('Operator', (s) => s.op, {short: true});
  add_if_differs('GPU', label_of, {short: true});
  add_if_differs('Problem', problem_text, {long: true});
  const result = (value) => (s) => (s.result ? value(s.result) : null);
  columns.push(
      {title: 'Changed from the default', long: true,
       value: (s) => (best(s) ? text_of(best(s).configuration) : null),
       text: (s) => (!s.result ? best(s) && text_of(best(s).configuration) :
                     keeps_default(s) ? element('span', {class: 'dim'}, 'nothing') : changes(s.result.otherwise, s.result.configuration))},
      number_column('µs', (s) => us(time_of(s)), 2, 'Median of the result in its run-off'),
      number_column('default', result((r) => us(r.otherwise_ms.median)), 2, 'µs of the default in the same run-off'),
      number_column('gain %', result((r) => percent(r.gain)), 1),
      number_column('margin %', result((r) => (Object.keys(r.runner_up).length ? percent(r.margin) : null)), 1));
  if (list.some(share_of_rate)) {
    columns.push(number_column(report.copy_bytes_per_second ? 'of copy %' : 'GB/s',
                               (s) => (report.copy_bytes_per_second ? percent(share_of_rate(s)) : s.bytes / time_of(s) / 1e6), 0,
                               'What it must move at least, by its time'),
                 number_column('× floor', over_floor, 2, 'Its time, by the larger of the fastest launch and the time for its bytes'));
  }
  columns.push({...number_column('tried', (s) => (s.result ? s.result.measured : s.measurements.length), 0,
                                 'Configurations that were measured; in brackets those that were rejected'),
                text: (s) => {
                  const tried = s.result ? s.result.measured : s.measurements.length;
                  const bad = s.result ? s.result.rejected : rejected(s).length;
                  return `${tried}${bad ? ` (${bad})` : ''}`;
                }});
  add_if_differs('State', (s) => state(s).split(':')[0], {short: true});  // the reason is with the setting
  return columns;
}

function filter_rows() {
  const words = document.getElementById('filter').value.toLowerCase().split(/\s+/);
  const rows = [...document.querySelectorAll('#settings tbody tr')];
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
  document.getElementById('shown').textContent = `${rows.filter((row) => !row.hidden).length} of ${plural(settings.length, 'setting')}`;
}

// The largest gain first.
function show_settings(list) {
  const sorted = [...list].sort((a, b) => compare(a.result?.gain, b.result?.gain, true));
  put_table(document.getElementById('settings'), sortable(setting_columns(list), sorted, {
    decorate: (row, setting) => row.setAttribute('data-id', setting.id), order: {'gain %': 'descending'}}));
  filter_rows();
}

function show_parts() {
  const list = in_scope();
  forget_charts();
  show_heat(list);
  show_roofline(list);
  show_gpus();
  show_settings(list);
}
