// Swim-lanes over time: sandbox slots, decoding, the learner, the age of samples.

import { $, ask, clock, color, el, kind, number, seconds } from './page.js';

const HIGH = 20; const GAP = 4; const LEFT = 78; const FOOT = 22; const LONG = 46;
const PHASES = {
  'log-probs': 'phase-a', update: 'phase-b', 'hand-over': 'phase-c',
  checkpoint: 'phase-d', validation: 'phase-e',
};
const KINDS = { ok: 'ok', warn: 'warn', bad: 'bad', fault: 'fault', none: 'none' };

export class Lanes {
  constructor(open) {
    this.open = open;
    this.canvas = $('lanes');
    this.end = null; // null: follows the newest
    this.boxes = [];
    this.data = {};
    $('span').addEventListener('change', () => this.load());
    $('earlier').addEventListener('click', () => this.move(-0.5));
    $('later').addEventListener('click', () => this.move(0.5));
    $('newest').addEventListener('click', () => { this.end = null; this.load(); });
    this.canvas.addEventListener('pointermove', (event) => this.tell(event));
    this.canvas.addEventListener('click', (event) => {
      const box = this.tell(event);
      if (box && box.id) this.open(box.id);
    });
    $('lane-key').append(
      ...[['ok', 'ok'], ['warn', 'limit'], ['bad', 'error'], ['none', 'malformed, no submission'],
        ['fault', 'infrastructure']].map(([k, text]) => el('span', { class: `k-${k}` }, text)),
      ...Object.keys(PHASES).map((what) => el('span', { class: `k-${PHASES[what].slice(-1)}` }, what)),
    );
  }

  get span() { return Number($('span').value); }

  move(part) {
    if (!this.data.end) return;
    const end = (this.end ?? this.data.end) + part * this.span;
    this.end = end >= this.data.last ? null : Math.max(end, this.data.first + this.span / 2);
    this.load();
  }

  async load(run = this.run) {
    if (run !== this.run) this.end = null;
    this.run = run;
    if (!run) return;
    const asked = { run, seconds: this.span, end: this.end };
    const data = await ask('lanes', asked);
    if (!data || data.error || run !== this.run) return;
    this.data = data;
    this.draw();
  }

  draw() {
    const { canvas, data } = this;
    const wide = canvas.clientWidth || 600;
    const context = canvas.getContext('2d');
    const lanes = this.laid(data);
    const high = lanes.reduce((sum, lane) => sum + lane.high + GAP, 0) + FOOT;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.height = `${high}px`;
    context.scale(ratio, ratio);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    this.boxes = [];
    if (!data.end) {
      $('lane-time').textContent = 'nothing with a time so far';
      return;
    }
    $('lane-time').textContent = `${clock(data.begin)} to ${clock(data.end)}`
      + (this.end === null ? ', newest' : '') + (data.cut ? '; the newest of many' : '');
    const x = (at) => LEFT + ((at - data.begin) / (data.end - data.begin || 1)) * (wide - LEFT - 6);
    let y = 0;
    for (const lane of lanes) {
      context.fillStyle = color('soft');
      context.fillRect(LEFT, y, wide - LEFT - 6, lane.high);
      context.fillStyle = color('muted');
      context.fillText(lane.name, 0, y + lane.high / 2);
      lane.paint(context, x, y, lane.high);
      y += lane.high + GAP;
    }
    this.axis(context, x, y, wide);
  }

  laid(data) {
    const slots = new Map();
    const rest = [];
    for (const one of data.executions || []) {
      if (one.slot === null) rest.push(one);
      else slots.set(one.slot, [...(slots.get(one.slot) || []), one]);
    }
    const lanes = [...slots].sort((a, b) => a[0] - b[0])
      .map(([slot, all]) => this.slot(`slot ${slot}`, all));
    if (rest.length) lanes.push(this.slot('no slot', rest));
    if (!lanes.length) lanes.push(this.slot('sandbox', []));
    lanes.push(this.decoding(data.decoding || []), this.learner(data.learner || []),
      this.ages(data.samples || []));
    return lanes;
  }

  slot(name, all) {
    return { name, high: HIGH, paint: (context, x, y, high) => {
      for (const one of all) {
        const started = one.begin + one.queue_s;
        const ran = started + one.startup_s;
        const ended = ran + one.exec_s;
        const fill = color(KINDS[kind(one.outcome)]);
        this.bar(context, x(one.begin), x(started), y + high - 3, 3, fill, 0.3);
        this.bar(context, x(started), x(ran), y + 3, high - 6, fill, 0.45);
        this.bar(context, x(ran), x(ended), y, high, fill, 1);
        this.bar(context, x(ended), x(one.end), y + 5, high - 10, fill, 0.6);
        this.boxes.push({ a: x(one.begin), b: x(one.end), y, high, id: rolloutOf(one.job),
          text: `${one.task} ${one.job}: ${one.outcome}; queue ${seconds(one.queue_s)}, start-up `
            + `${seconds(one.startup_s)}, execution ${seconds(one.exec_s)}, clearing up and `
            + `grading ${seconds(one.rest_s)}; ended ${clock(one.end)}` });
      }
    } };
  }

  // How many completions were being drawn, as a curve.
  decoding(calls) {
    return { name: 'decoding', high: LONG, paint: (context, x, y, high) => {
      const turns = calls.flatMap(([a, b]) => [[a, 1], [b, -1]]).sort((p, q) => p[0] - q[0]);
      let level = 0; let most = 1;
      for (const [, by] of turns) { level += by; most = Math.max(most, level); }
      level = 0;
      context.fillStyle = color('phase-a');
      const { begin, end } = this.data;
      turns.forEach(([at, by], i) => {
        level += by;
        const next = i + 1 < turns.length ? turns[i + 1][0] : at;
        const a = x(Math.max(begin, at)); const b = x(Math.min(end, next));
        if (level > 0 && b > a) context.fillRect(a, y + high - (level / most) * high, b - a + 0.3, (level / most) * high);
      });
      this.boxes.push({ a: LEFT, b: 1e9, y, high, at: (px, now) => {
        const n = calls.filter(([a, b]) => a <= now && now < b).length;
        return `${n} completions of finished rollouts being drawn at ${clock(now)}; at most ${most}`;
      } });
    } };
  }

  learner(phases) {
    return { name: 'learner', high: HIGH, paint: (context, x, y, high) => {
      for (const one of phases) {
        const [a, b] = [x(Math.max(one.begin, this.data.begin)), x(Math.min(one.end, this.data.end))];
        this.bar(context, a, b, y, high, color(PHASES[one.what] || 'none'), 1);
        this.boxes.push({ a, b, y, high,
          text: `update ${one.update}: ${one.phase}, ${seconds(one.end - one.begin)}, until ${clock(one.end)}` });
      }
    } };
  }

  ages(samples) {
    return { name: 'policy age', high: LONG, paint: (context, x, y, high) => {
      const most = Math.max(1, ...samples.map((one) => one[1] ?? 0));
      for (const [at, age, outcome, id] of samples) {
        const tall = age === null ? 3 : 4 + (age / most) * (high - 8);
        const a = x(at) - 1.5;
        this.bar(context, a, a + 3, y + high - tall, tall, color(KINDS[kind(outcome)]), age === null ? 0.4 : 1);
        this.boxes.push({ a: a - 1, b: a + 4, y, high, id,
          text: `${id.replace('~0', '')}: ${outcome || 'no outcome'}, ended ${clock(at)}; `
            + (age === null ? 'in no update' : `policy age ${age} when an update learned from it`) });
      }
      context.fillStyle = color('muted');
      context.fillText(`≤ ${number(most)}`, 0, y + high - 8);
    } };
  }

  bar(context, a, b, y, high, fill, alpha) {
    const left = Math.max(LEFT, a);
    if (b < left) return;
    context.globalAlpha = alpha;
    context.fillStyle = fill;
    context.fillRect(left, y, Math.max(0.7, b - left), high);
    context.globalAlpha = 1;
  }

  axis(context, x, y, wide) {
    const { begin, end } = this.data;
    const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400];
    const room = Math.max(2, Math.floor((wide - LEFT) / 90));
    const step = steps.find((s) => (end - begin) / s <= room) || 28800;
    context.fillStyle = color('muted');
    context.textAlign = 'center';
    for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
      const px = x(at);
      if (px < LEFT + 24 || px > wide - 30) continue;
      context.fillRect(px, y - GAP, 1, 4);
      context.fillText(clock(at), px, y + 9);
    }
    context.textAlign = 'left';
  }

  tell(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - left, event.clientY - top];
    const box = this.boxes.findLast((one) => one.a - 2 <= px && px <= Math.max(one.b, one.a + 2) + 1
      && one.y <= py && py <= one.y + one.high);
    const { begin, end } = this.data;
    const now = begin + ((px - LEFT) / (this.canvas.clientWidth - LEFT - 6)) * (end - begin);
    $('lane-told').textContent = box ? (box.text || box.at(px, now)) : '\u00a0';
    return box;
  }
}

// The rollout of an execution's id, PROMPT#DRAW.CALL.
function rolloutOf(job) {
  const found = /^(.+)#(\d+)\.\d+/.exec(job);
  return found ? `${found[1]}~${Number(found[2]) - 1}` : '';
}
