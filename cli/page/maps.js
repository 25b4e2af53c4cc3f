// Heat maps: what cells show, and which features are axes.

const greatest_gain = Math.max(0, ...settings.map((s) => s.result?.gain ?? 0));
const paths = unique(settings.map((s) => best(s)?.configuration.path).filter((path) => path != null));

// What cells show: text, how warm from 0 to 1 (the root shows small gains too), or which kind.
function metrics() {
  const known = [{
    name: 'gain', title: 'gain',
    text: (s) => (!s.result ? '' : keeps_default(s) ? '·' : number(percent(s.result.gain), 1)),
    warmth: (s) => Math.sqrt(Math.max(0, s.result?.gain ?? 0) / (greatest_gain || 1)),
    legend: () => [gradient('0', percent_text(greatest_gain)), 'Percent less time than the default; · keeps the default.']}];
  if (settings.some(share_of_rate)) {
    known.push({
      name: 'rate', title: `share of the ${rate_name}`,
      text: (s) => number(percent(share_of_rate(s)), 0), warmth: (s) => share_of_rate(s) ?? 0,
      legend: () => [gradient('0', '100 %'), `Percent of the ${rate_name}.`]});
  }
  known.push({
    name: 'time', title: 'time', text: (s) => number(us(time_of(s)), time_of(s) < .1 ? 1 : 0),
    warmth: (s) => Math.log(time_of(s) / fastest_time) / Math.log(slowest_time / fastest_time || 2),
    legend: () => [gradient(us_text(fastest_time), us_text(slowest_time)), 'µs of the result.']});
  if (paths.length > 1) {
    known.push({name: 'path', title: 'path', text: (s) => best(s)?.configuration.path ?? '',
                kind: (s) => kind(paths, best(s)?.configuration.path),
                legend: () => paths.map((path) => element('span', {class: 'legend'},
                    element('b', {style: `--kind: ${kind(paths, path)}`}), path))});
  }
  return known;
}
const all_times = settings.map(time_of).filter((ms) => ms > 0);
const fastest_time = Math.min(...all_times);
const slowest_time = Math.max(...all_times);

const gradient = (from, to) => element('span', {class: 'legend'}, from, element('i', {}), to);

function heat_cell(setting, metric, current) {
  if (!setting) return element('td', {});
  const title = [setting.op, bucket_text(setting), us_text(time_of(setting)),
                 setting.result && `gain ${percent_text(setting.result.gain)}`].filter(Boolean).join(', ');
  const warmth = metric.kind ? null : Math.min(1, Math.max(0, metric.warmth(setting)));
  return element('td', {class: metric.kind ? 'kind' : warmth > .55 ? 'cell hot' : 'cell',
                        style: metric.kind ? `--kind: ${metric.kind(setting)}` : `--t: ${warmth.toFixed(3)}`,
                        'aria-current': setting === current ? 'true' : null},
                 element('a', {href: `#${setting.id}`, title}, metric.text(setting)));
}

// One map: rows have headers (a value of each of `row_fields`).
function heat_table(caption, row_fields, rows, column, columns, at, metric, current) {
  const corner = row_fields.map((name, i) => element('th', {scope: 'col', class: 'field'},
      name.replaceAll('_', '_\u200b') + (i === row_fields.length - 1 ? ` \\ ${column}` : '')));
  if (corner.length === 0) corner.push(element('th', {scope: 'row', class: 'field'}, column));
  const head = element('tr', {}, ...corner, ...columns.map((value) => element('th', {scope: 'col'}, value)));
  const body = rows.map((row) => element('tr', {}, ...(row.header.length ? row.header : ['']).map((text) => element('th', {scope: 'row'}, text)),
                                         ...columns.map((value) => heat_cell(at(row, value), metric, current))));
  return element('table', {}, ...(caption ? [element('caption', {}, caption)] : []),
                 element('thead', {}, head), element('tbody', {}, ...body));
}

const numeric = (a, b) => compare(+a, +b, false);

// The features of a problem that have several values, those with most values first.
function varying(list) {
  const buckets = list.map((s) => fields_of(s.bucket));
  return Object.keys(buckets[0]).map((name) => [name, unique(buckets.map((b) => b[name])).sort(numeric)])
      .filter(([, values]) => values.length > 1).sort((a, b) => b[1].length - a[1].length);
}

// Of a problem with several features: two are the axes; one map for each value of the others.
function maps_of_problem(list, features, metric, current) {
  const [[column, columns], [row, rows], ...others] = features;
  const value = (s, name) => fields_of(s.bucket)[name];
  const key = (s) => others.map(([name]) => `${name}=${value(s, name)}`).join(', ');
  // The last of the others goes from left to right, the rest downwards.
  const across = others.length ? others.at(-1)[1] : [];
  const groups = [...group_by(list, key)].sort(([a], [b]) => compare(a, b, false));
  const without_last = (s) => others.slice(0, -1).map(([name]) => value(s, name)).join();
  const lines = unique(groups.map(([, [s]]) => without_last(s)));
  const panels = groups.map(([caption, members]) => {
    const header = rows.filter((r) => members.some((s) => value(s, row) === r)).map((r) => ({header: [r], r}));
    const used = columns.filter((c) => members.some((s) => value(s, column) === c));
    const map = heat_table(caption, [row], header, column, used,
                           ({r}, c) => members.find((s) => value(s, row) === r && value(s, column) === c), metric, current);
    const at = others.length ? across.indexOf(value(members[0], others.at(-1)[0])) : 0;
    return element('div', {style: `--across: ${at + 1}; --down: ${lines.indexOf(without_last(members[0])) + 1}`}, map);
  });
  return element('div', {class: 'panels'}, ...panels);
}

// Problems with one feature at most share a map: a row for each.
function map_of_problems(list, column, metric, current) {
  const names = telling_fields(list[0].op);
  const rows = [...group_by(list, (s) => s.problem)].map(([problem, members]) => {
    const fields = fields_of(problem);
    return {header: names.map((name) => fields[name] ?? ''), members};
  }).sort((a, b) => compare(a.header.join(';'), b.header.join(';'), false));
  const columns = unique(list.map((s) => fields_of(s.bucket)[column])).sort(numeric);
  return heat_table('', names, rows, column, columns,
                    ({members}, value) => members.find((s) => fields_of(s.bucket)[column] === value), metric, current);
}

// The maps of one operator on one place.
function heat_maps(list, current = null) {
  const metric = metrics().find((m) => m.name === scope.metric);
  const problems = [...group_by(list, (s) => s.problem).values()].map((members) => ({members, features: varying(members)}));
  const flat = group_by(problems.filter(({features}) => features.length < 2),
                        ({members, features}) => features[0]?.[0] ?? Object.keys(fields_of(members[0].bucket))[0]);
  const parts = [...flat].map(([column, group]) => map_of_problems(group.flatMap(({members}) => members), column, metric, current));
  for (const {members, features} of problems.filter((problem) => problem.features.length > 1)) {
    const title = problem_text(members[0]);
    parts.push(element('div', {}, ...(title ? [element('p', {class: 'code dim'}, title)] : []),
                       maps_of_problem(members, features, metric, current)));
  }
  return parts;
}

const map_cards = (list, current) => heat_maps(list, current).map(
    (map) => element('div', {class: 'card pad maps', tabindex: '0'}, map));

function show_heat(list) {
  const metric = metrics().find((m) => m.name === scope.metric);
  const parts = [element('h2', {}, 'Where: every setting'),
                 element('div', {class: 'bar dim'}, ...metric.legend(), element('span', {}, 'A cell leads to its setting.'))];
  const groups = [...group_by(list, (s) => s.op + place_of(s)).values()].map((members) => element('div', {},
      element('h3', {}, members[0].op, element('span', {class: 'dim'}, ` on ${label_of(members[0])}`)), ...map_cards(members)));
  document.getElementById('heat').replaceChildren(...parts, element('div', {class: 'side'}, ...groups));
}
