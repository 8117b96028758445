// Curves as they grow; of two runs over each other.

import { $, ask, choices, color, el, number } from './page.js';

const COLORS = ['sft', 'rl', 'ok', 'fault'];

export class Curves {
  constructor() {
    this.plots = new Map(); // title -> {plot, figure, made}
    $('metric').addEventListener('change', () => this.load());
    new ResizeObserver(() => this.fit()).observe($('plots'));
  }

  async load(run = this.run, other = this.other) {
    [this.run, this.other] = [run, other];
    if (!run) return;
    const name = $('metric').value ? [$('metric').value] : [];
    const [mine, theirs] = await Promise.all([
      ask('curves', { run, name }), other ? ask('curves', { run: other, name }) : null]);
    if (!mine || mine.error || run !== this.run) return;
    choices($('metric'), mine.names.map((one) => [one, one]), '–');
    this.show(mine, theirs && !theirs.error ? theirs : null, name);
  }

  show(mine, theirs, more) {
    const key = [el('span', {}, this.run)];
    if (theirs) key.push(el('span', { class: 'second' }, `${this.other} (dashed)`));
    $('curve-key').replaceChildren(...key);
    const panels = mine.panels.concat((theirs ? theirs.panels : [])
      .filter((one) => !mine.panels.some((own) => own.title === one.title)));
    for (const one of more) {
      if (!panels.some((p) => p.title === one)) {
        panels.unshift({ stage: 'rl', title: one, note: '', lines: [[one, one]] });
      }
    }
    const titles = panels.map((panel) => panel.title);
    for (const [title, held] of this.plots) {
      if (!titles.includes(title)) this.drop(title, held);
    }
    if (!panels.length) {
      if (!$('plots').firstChild) $('plots').append(el('p', { class: 'muted' }, 'No metrics so far.'));
      return;
    }
    if (!this.plots.size) $('plots').replaceChildren();
    panels.forEach((panel) => this.panel(panel, mine, theirs));
    titles.forEach((title) => $('plots').append(this.plots.get(title).figure));
  }

  panel(panel, mine, theirs) {
    const lines = panel.lines.flatMap(([name, label], i) => [
      { name, label, from: mine, color: COLORS[i], dash: null },
      ...(theirs ? [{ name, label: `${label}, second`, from: theirs,
        color: COLORS[(i + 1) % 4], dash: [5, 4] }] : [])]);
    const tables = lines.map(({ from, name }) => {
      const { steps, columns } = from[panel.stage];
      return [steps, columns[name] || steps.map(() => null)];
    });
    const data = tables.length === 1 ? tables[0] : uPlot.join(tables);
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    const made = JSON.stringify([lines.map((l) => [l.name, l.dash]), dark]);
    const held = this.plots.get(panel.title);
    const last = number(tables[0][1].findLast((value) => value !== null));
    if (held && held.made === made) {
      held.plot.setData(data);
      held.last.textContent = last;
      return;
    }
    if (held) this.drop(panel.title, held);
    const lastNode = el('b', {}, last);
    const figure = el('figure', {}, el('figcaption', {}, el('b', {}, panel.title),
      el('span', {}, panel.note), el('span', { class: 'legend' }, lastNode)));
    $('plots').append(figure);
    const axis = { stroke: color('muted'), grid: { stroke: color('line'), width: 1 },
      ticks: { stroke: color('line'), width: 1 }, font: '11px system-ui, sans-serif' };
    const plot = new uPlot({
      width: Math.max(200, figure.clientWidth), height: 170,
      scales: { x: { time: false, range: (_, low, high) => (low === high ? ranged(low, high) : [low, high]) }, y: { range: (_, low, high) => ranged(low, high) } },
      legend: { live: true },
      cursor: { sync: { key: 'curves' }, drag: { x: true, y: false } },
      axes: [{ ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000] },
        { ...axis, size: 54, values: (_, all) => all.map((value) => number(value)) }],
      series: [{ label: panel.stage === 'sft' ? 'step' : 'update' }, ...lines.map((line) => ({
        label: line.label, stroke: color(line.color), width: 1.6, dash: line.dash || undefined,
        spanGaps: true, points: { show: data[0].length < 3 }, value: (_, value) => number(value),
      }))],
    }, data, figure);
    this.plots.set(panel.title, { plot, figure, made, last: lastNode });
  }

  drop(title, held) {
    held.plot.destroy();
    held.figure.remove();
    this.plots.delete(title);
  }

  fit() {
    for (const { plot, figure } of this.plots.values()) {
      const width = Math.max(200, figure.clientWidth);
      if (plot.width !== width) plot.setSize({ width, height: 170 });
    }
  }
}

// Ends of an axis: of a line that does not move, a little around it.
function ranged(low, high) {
  if (low === null || high === null) return [0, 1];
  if (low === high) return [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const room = (high - low) * 0.06;
  return [low - room, high + room];
}
