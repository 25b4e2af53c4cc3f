// One setting, and which of the two views is shown.

// ---- One setting ----

// The share of the variance of the logarithm of the time that the values of one field explain, each by itself.
function explained(setting, field) {
  const list = correct(setting).map((m) => ({value: m.configuration[field], y: Math.log(m.ms.median)}));
  const mean = sum(list.map(({y}) => y)) / list.length;
  const total = sum(list.map(({y}) => (y - mean) ** 2));
  const between = sum([...group_by(list, ({value}) => value).values()].map(
      (group) => group.length * (sum(group.map(({y}) => y)) / group.length - mean) ** 2));
  return total > 0 ? between / total : 0;
}

// The part that a measured configuration has in the decision; '' for none.
function role_of(setting, configuration) {
  const result = setting.result;
  if (!result) return '';
  return [['chosen', result.configuration], ['default', result.otherwise], ['runner-up', result.runner_up]]
      .filter(([, other]) => same(other, configuration)).map(([name]) => name).join(', ');
}

// Candidates as points, those with a part in the decision marked.
function candidate_sets(setting, to_point) {
  const all = correct(setting).map((m, i) => ({...to_point(m, i), of: m, role: role_of(setting, m.configuration)}));
  const of = (role) => all.filter((p) => p.role.startsWith(role));
  return [points('chosen', 'chosen', of('chosen'), {pointStyle: 'rectRot', radius: 8, hoverRadius: 10, backgroundColor: color('chosen')}),
          points('default', 'default', of('default'), {pointStyle: 'triangle', radius: 7, hoverRadius: 9, backgroundColor: color('default')}),
          points('runner-up', 'runner-up', of('runner-up'), {pointStyle: 'rect', radius: 6, hoverRadius: 8, backgroundColor: color('runner-up')}),
          points('candidate', 'candidate', all.filter((p) => !p.role), {radius: 3, hoverRadius: 5})].filter(({data}) => data.length);
}

const candidate_tooltip = ({raw}) => `${us_text(raw.of.ms.median)}: ${text_of(raw.of.configuration)}`;

function time_axis(setting) {
  const times = correct(setting).map((m) => m.ms.median);
  return Math.max(...times) > 4 * Math.min(...times) ? log_axis('µs') : axis('µs', {ticks: {maxTicksLimit: 7}});
}

// Latency of every candidate against the values of one field.
function draw_field(canvas, setting, field) {
  const values = unique(correct(setting).map((m) => m.configuration[field])).sort((a, b) => compare(a, b, false));
  // Points of one value are spread a little, or they would hide each other.
  const shift = (m, i) => (role_of(setting, m.configuration) ? 0 : ((i * 7) % 13 - 6) / 30);
  draw(canvas, 'scatter',
       candidate_sets(setting, (m, i) => ({x: values.indexOf(m.configuration[field]) + shift(m, i), y: us(m.ms.median)})), {
    x: axis(field, {type: 'linear', min: -.5, max: values.length - .5, grid: {display: false},
                    afterBuildTicks: (scale) => { scale.ticks = values.map((_, i) => ({value: i})); },
                    ticks: {autoSkip: false, callback: (i) => String(values[i])}}),
    y: time_axis(setting), tooltip: candidate_tooltip});
}

function draw_ranking(canvas, setting) {
  const order = [...correct(setting)].sort((a, b) => a.ms.median - b.ms.median);
  draw(canvas, 'scatter', candidate_sets(setting, (m) => ({x: order.indexOf(m) + 1, y: us(m.ms.median)})), {
    x: axis('candidate, the fastest first', {min: 0}), y: time_axis(setting), tooltip: candidate_tooltip});
}

function candidate_charts(setting) {
  if (correct(setting).length < 2) return [];
  const ranking = chart_card('All candidates by time', 'wide');
  const fields = unique(correct(setting).flatMap((m) => Object.keys(m.configuration)))
      .filter((field) => unique(correct(setting).map((m) => m.configuration[field])).length > 1)
      .map((field) => ({field, share: explained(setting, field)})).sort((a, b) => b.share - a.share);
  return [{...ranking, draw: () => draw_ranking(ranking.canvas, setting)}, ...fields.map(({field, share}) => {
    const {box, canvas} = chart_card(`${field}: ${number(percent(share), 0)} % of the variance`);
    return {box, canvas, draw: () => draw_field(canvas, setting, field)};
  })];
}

// What is known of a setting beside its numbers.
function facts(setting) {
  const result = setting.result;
  const gpu = setting.gpu;
  const rows = [
    ['Problem', code(setting.problem)],
    ['Shape', `${text_of(setting.shape)} (features ${text_of(setting.features)})`],
    ['GPU', `${gpu.name} (${gpu.arch}, ${gpu.sm_count} SMs, ${gpu.l2_bytes / 2 ** 20} MiB of L2` +
            `${gpu.mig ? `, MIG ${gpu.mig}` : ''}), driver ${setting.driver || 'unknown'}`],
    ['Compiled by', `NVRTC ${setting.nvrtc}`]];
  if (result) {
    if (result.agreed) rows.push(['Batch-invariant', code(text_of(result.agreed))]);
    if (result.clocks.sm_mhz) {
      rows.push(['Clocks', `SM ${result.clocks.sm_mhz} MHz, memory ${result.clocks.memory_mhz} MHz`]);
    }
    rows.push(['Decided', result.time]);
  }
  if (state(setting)) rows.push(['State', state(setting)]);
  rows.push(['Id', code(setting.id)]);
  return element('dl', {class: 'card'}, ...rows.flatMap(
      ([name, value]) => [element('dt', {}, name), element('dd', {}, ...cell(value))]));
}

function headline(setting) {
  const result = setting.result;
  const parts = [[time_of(setting) ? us_text(time_of(setting)) : '-', result ? 'chosen' : 'best so far']];
  if (result) {
    parts.push([result.otherwise_ms.median > 0 ? us_text(result.otherwise_ms.median) : '-', 'default'],
               [percent_text(result.gain), 'gain']);
  }
  if (share_of_rate(setting)) {
    parts.push([tb_text(setting.bytes / time_of(setting)), `${number(percent(share_of_rate(setting)), 0)} % of the ${rate_name}`],
               [`${number(over_floor(setting), 2)} ×`, 'its floor']);
  }
  return element('div', {class: 'card facts'}, ...parts.map(([value, name]) => element('div', {},
      element('div', {class: 'big'}, value), element('div', {class: 'dim'}, name))));
}

// Who met in the run-off: a column for each field, what is not as in the chosen one in bold.
function run_off_table(setting) {
  const {result} = setting;
  const rows = [{role: 'chosen', configuration: result.configuration, ms: result.ms.median, spread: spread(result.ms)}];
  if (!keeps_default(setting)) {
    rows.push({role: 'default', configuration: result.otherwise, ms: result.otherwise_ms.median, spread: spread(result.otherwise_ms)});
  }
  if (Object.keys(result.runner_up).length && !same(result.runner_up, result.otherwise)) {
    rows.push({role: 'runner-up', configuration: result.runner_up, ms: result.ms.median * (1 + result.margin)});
  }
  rows[0].role = keeps_default(setting) ? 'chosen, the default' : 'chosen';
  const fields = unique(rows.flatMap(({configuration}) => Object.keys(configuration)));
  const field_column = (name) => text_column(name, (row) => row.configuration[name] ?? null, {short: true, text: (row) => {
    const value = String(row.configuration[name] ?? '-');
    return row.configuration[name] === result.configuration[name] ? value : element('b', {}, value);
  }});
  return sortable([
    text_column('Run-off', (row) => row.role, {short: true}),
    number_column('µs', (row) => us(row.ms), 2),
    number_column('over chosen %', (row) => percent(row.ms / result.ms.median - 1), 1),
    number_column('spread %', (row) => percent(row.spread), 1, 'From the 10th to the 90th percentile'),
    ...fields.map(field_column),
  ], rows);
}

// One number for each kernel; rows are sorted by the largest.
const kernel_column = (title, value, help) => ({
  title, numeric: true, help,
  value: (m) => (m.kernels.length ? Math.max(...m.kernels.map(value)) : null),
  text: (m) => m.kernels.map((kernel) => Math.round(value(kernel))).join(' / ')});

function candidate_table(setting) {
  const items = [...correct(setting)].sort((a, b) => a.ms.median - b.ms.median);
  const fastest = items[0].ms.median;
  const kernels = unique(setting.measurements.flatMap((m) => m.kernels.map((k) => k.kernel))).join(' / ');
  const fields = unique(items.flatMap((m) => Object.keys(m.configuration)));
  return sortable([
    number_column('Place', (m) => items.indexOf(m) + 1, 0),
    {...text_column('Part', (m) => role_of(setting, m.configuration) || null, {short: true}),
     text: (m) => (role_of(setting, m.configuration) ? element('b', {}, role_of(setting, m.configuration)) : '')},
    number_column('µs', (m) => us(m.ms.median), 2),
    number_column('over best %', (m) => percent(m.ms.median / fastest - 1), 1),
    number_column('spread %', (m) => percent(spread(m.ms)), 1),
    ...fields.map((name) => text_column(name, (m) => m.configuration[name] ?? null, {
      short: true, text: (m) => String(m.configuration[name] ?? '')})),
    number_column('error of limit %', (m) => (m.check.limit ? percent(m.check.error / m.check.limit) : null), 0,
                  'The largest error against the reference, as a share of what is allowed'),
    kernel_column('registers', (k) => k.registers, kernels),
    kernel_column('shared bytes', (k) => k.shared_bytes, kernels),
    kernel_column('compile ms', (k) => k.compile_ms, kernels),
  ], items, {order: {'µs': 'ascending'}, decorate: (row, m) => {
    if (role_of(setting, m.configuration).startsWith('chosen')) row.setAttribute('aria-current', 'true');
  }});
}

function rejected_part(setting) {
  const items = rejected(setting);
  if (items.length === 0) return [];
  const counts = unique(items.map((m) => m.verdict))
      .map((verdict) => `${items.filter((m) => m.verdict === verdict).length} ${verdict}`).join(', ');
  return [element('h3', {}, `Rejected: ${counts}`), card(sortable([
    text_column('Configuration', (m) => text_of(m.configuration), {long: true}),
    text_column('Verdict', (m) => m.verdict, {short: true}),
    text_column('Reason', (m) => m.reason, {long: true}),
  ], items))];
}

function show_detail(setting) {
  const drawings = candidate_charts(setting);
  const parts = [
    element('p', {}, element('a', {href: '#'}, '← all settings')),
    element('h2', {style: 'margin-top: .5rem'}, setting.op, element('span', {class: 'dim'}, ` on ${label_of(setting)}`)),
    element('p', {class: 'code'}, bucket_text(setting)), headline(setting)];
  if (problem_text(setting)) parts.splice(3, 0, element('p', {class: 'code dim'}, problem_text(setting)));
  if (setting.result) {
    parts.push(element('h3', {}, 'Why this one'), element('p', {}, setting.result.chosen_because), card(run_off_table(setting)));
  }
  const around = settings.filter((s) => s.op === setting.op && s.problem === setting.problem && place_of(s) === place_of(setting));
  if (around.length > 1) {
    const metric = metrics().find((m) => m.name === scope.metric);
    parts.push(element('h3', {}, 'The other settings of this problem'), element('div', {class: 'bar dim'}, ...metric.legend()),
               ...map_cards(around, setting));
  }
  if (drawings.length) {
    parts.push(element('h3', {}, 'What was measured in the search'),
               element('div', {class: 'grid'}, ...drawings.map(({box}) => box)));
  }
  if (correct(setting).length) {
    parts.push(element('h3', {}, 'Candidates, the fastest in the search first'), card(candidate_table(setting)));
  }
  parts.push(...rejected_part(setting), element('h3', {}, 'Setting'), facts(setting));
  document.getElementById('detail').replaceChildren(...parts);
  drawings.forEach((drawing) => drawing.draw());  // a canvas has a size once it is in the page
}

// ---- Which of the two views: the address names a setting, or none ----

let overview_at = 0;  // where the overview was left
let shown = null;

function show() {
  const id = decodeURIComponent(location.hash.slice(1));
  const setting = settings.find((other) => other.id === id) ?? null;
  if (!shown) overview_at = window.scrollY;
  shown = setting;
  document.getElementById('overview').hidden = setting != null;
  document.getElementById('detail').hidden = setting == null;
  forget_charts();
  if (setting) {
    show_detail(setting);
    window.scrollTo(0, 0);
  } else {
    show_parts();
    window.scrollTo(0, overview_at);
  }
}

history.scrollRestoration = 'manual';
show_summary();
show_scope();
document.getElementById('filter').addEventListener('input', filter_rows);
show();
window.addEventListener('hashchange', show);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', show);
