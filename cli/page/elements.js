// Tables that sort and charts.

// ---- Elements ----

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value != null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const link = (setting, ...content) => element('a', {href: `#${setting.id}`}, ...content);

// A column: title, value (what rows are sorted by; null goes last), text (what a cell shows), help; long: cells that
// may take several lines; short: cells that may not.
const text_column = (title, value, more = {}) => ({title, value, text: value, ...more});
const number_column = (title, value, digits, help) =>
    ({title, value, text: (row) => number(value(row), digits), numeric: true, help});

// Lines may break behind the semicolons of a list.
function cell(content) {
  if (typeof content !== 'string') return content == null ? [] : [content].flat();
  return content.split(/(?<=;)/).flatMap((part, i) => (i ? [document.createElement('wbr'), part] : [part]));
}

// Roles are those that the elements have by themselves until the style shows them otherwise.
function table_cell(column, item) {
  const style = column.numeric ? 'number' : column.long ? 'long' : column.short ? 'short' : null;
  return element('td', {role: 'cell', class: style, 'data-title': column.title}, ...cell(column.text(item)));
}

// A table that its headers sort; `decorate` gets each row's element and item, `order` says how the items are sorted.
function sortable(columns, items, {decorate = () => {}, order = {}} = {}) {
  const body = element('tbody', {role: 'rowgroup'});
  const rows = items.map((item) => {
    const row = element('tr', {role: 'row'}, ...columns.map((column) => table_cell(column, item)));
    decorate(row, item);
    return {row, item};
  });
  body.append(...rows.map(({row}) => row));
  const headers = columns.map((column) => {
    const button = element('button', {type: 'button', title: column.help}, column.title);
    const header = element('th', {scope: 'col', role: 'columnheader', class: column.numeric ? 'number' : null,
                                  'aria-sort': order[column.title]}, button);
    button.addEventListener('click', () => {
      const down = header.getAttribute('aria-sort') === 'ascending';
      headers.forEach((other) => other.removeAttribute('aria-sort'));
      header.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      rows.sort((a, b) => compare(column.value(a.item), column.value(b.item), down));
      body.append(...rows.map(({row}) => row));
    });
    return header;
  });
  const head = element('thead', {role: 'rowgroup'}, element('tr', {role: 'row'}, ...headers));
  return element('table', {role: 'table'}, head, body);
}

function compare(a, b, down) {
  if (a == null || b == null) return (a == null) - (b == null);
  const order = typeof a === 'number' ? a - b : String(a).localeCompare(String(b), 'en', {numeric: true});
  return down ? -order : order;
}

const code = (text) => element('span', {class: 'code'}, ...cell(text));

// A table in a box that scrolls downwards only: where the table does not fit across, its rows are stacked.
const fitting = new ResizeObserver((entries) => requestAnimationFrame(() => {
  for (const {target: box} of entries) {
    if (box.fitted === box.clientWidth) continue;
    box.fitted = box.clientWidth;
    const [table] = box.children;
    table.classList.remove('stacked');
    table.classList.toggle('stacked', box.scrollWidth > box.clientWidth);
  }
}));

function put_table(box, table) {
  box.replaceChildren(table);
  box.fitted = null;
  fitting.unobserve(box);
  fitting.observe(box);
  return box;
}

const card = (table) => put_table(element('div', {class: 'card scroll', tabindex: '0'}), table);

// ---- Charts ----

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
let charts = [];

function forget_charts() {
  charts.forEach((chart) => chart.destroy());
  charts = [];
}

function chart_card(title, style = '') {
  const canvas = element('canvas', {role: 'img', 'aria-label': title});
  const box = element('div', {class: `card pad chart ${style}`}, element('h4', {}, title), element('div', {}, canvas));
  return {box, canvas};
}

function axis(title, more = {}) {
  return {title: {display: true, text: title, color: color('dim')}, grid: {color: color('line')}, ...more,
          ticks: {color: color('dim'), ...more.ticks}};
}

// A logarithmic axis with ticks at 1, 2 and 5 of each decade.
const log_axis = (title) => axis(title, {
  type: 'logarithmic',
  ticks: {maxTicksLimit: 12, maxRotation: 0, callback: (value) => (/^[125]/.test(value.toExponential()) ? String(+value.toPrecision(2)) : null)}});

// Points may have `of`, a setting: a click leads to it.
function draw(canvas, type, datasets, {x, y, tooltip, legend = true}) {
  charts.push(new Chart(canvas, {
    type,
    data: {datasets},
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, scales: {x, y},
      onClick: (event, [hit]) => {
        const setting = hit && datasets[hit.datasetIndex].data[hit.index].setting;
        if (setting) location.hash = setting.id;
      },
      onHover: (event, [hit]) => {
        canvas.style.cursor = hit && datasets[hit.datasetIndex].data[hit.index].setting ? 'pointer' : 'default';
      },
      plugins: {legend: {display: legend, labels: {color: color('ink'), usePointStyle: true, boxWidth: 7, boxHeight: 7}},
                tooltip: {filter: (item) => !item.dataset.is_floor, callbacks: tooltip ? {label: tooltip} : {}}},
    },
  }));
}

const points = (label, color_name, data, more = {}) => ({
  label, data, borderWidth: 1, borderColor: color(color_name), backgroundColor: `${color(color_name)}90`,
  pointStyle: 'circle', radius: 4, hoverRadius: 6, ...more});
