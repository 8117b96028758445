// The list of rollouts, its filters, and one rollout or its group in full.

import { $, ask, choices, clock, el, mark, number, seconds } from './page.js';

const PAGE = 50;

export class Rollouts {
  constructor(opened) {
    this.opened = opened; // told the id of what is open
    this.starts = [0]; // offsets of the pages back to the newest
    this.asked = 0;
    for (const id of ['task', 'outcome', 'fate', 'update']) {
      $(id).addEventListener('change', () => this.anew());
    }
    let waits;
    $('text').addEventListener('input', () => {
      clearTimeout(waits);
      waits = setTimeout(() => this.anew(), 250);
    });
    $('newer').addEventListener('click', () => { this.starts.pop(); this.load(); });
    $('older').addEventListener('click', () => { this.starts.push(this.next); this.load(); });
    $('close').addEventListener('click', () => this.close());
    $('grouped').addEventListener('click', () => this.open(this.id, !this.group));
  }

  get newest() { return this.starts.length === 1; }

  anew() {
    this.starts = [0];
    this.load();
  }

  counts(counts) {
    for (const id of ['task', 'outcome', 'fate']) {
      const sorted = Object.entries(counts[id]).filter(([name]) => name)
        .sort((a, b) => b[1] - a[1]);
      choices($(id), sorted.map(([name, n]) => [name, `${name} (${n})`]), 'any');
    }
  }

  async load(run = this.run) {
    if (run !== this.run) {
      this.starts = [0];
      if (this.run) this.close();
    }
    this.run = run;
    if (!run) return;
    const asked = ++this.asked;
    const question = { run, limit: PAGE };
    for (const id of ['task', 'outcome', 'fate', 'update', 'text']) {
      question[id] = $(id).value.trim();
    }
    let rows = [];
    let offset = this.starts.at(-1);
    let page;
    do { // a search looks at some of them each time
      page = await ask('rollouts', { ...question, offset, limit: PAGE - rows.length });
      if (!page || asked !== this.asked) return;
      if (page.error) {
        $('matched').textContent = page.error;
        return;
      }
      rows = rows.concat(page.rows);
      offset = page.next;
      this.show(page, rows, question.text);
    } while (question.text && rows.length < PAGE && page.next !== null);
  }

  show(page, rows, text) {
    this.next = page.next;
    const from = this.starts.at(-1);
    $('matched').textContent = text
      ? `${rows.length} of the ${page.looked} newest that were searched, of ${page.total}`
      : `${page.matched} of ${page.total}`;
    $('paged').textContent = rows.length && !text ? `${from + 1} to ${from + rows.length}, newest first` : '';
    $('newer').disabled = this.newest;
    $('older').disabled = page.next === null;
    const body = $('rollouts').tBodies[0];
    const made = JSON.stringify(rows);
    if (body.dataset.made === made) return;
    body.dataset.made = made;
    body.replaceChildren(...rows.map((row) => this.row(row)));
  }

  row(row) {
    const name = row.prompt_id + (row.restart ? ` (restart ${row.restart})` : '');
    const open = el('button', { type: 'button', on: () => this.open(row.id) }, name);
    const cell = (label, text, css) => el('td', { 'data-name': label, class: css },
      ...(text === '' || text === null || text === undefined ? [] : [text]));
    const line = el('tr', { 'data-id': row.id, class: row.id === this.id ? 'open' : null },
      cell(null, clock(row.at)), cell(null, open), cell(null, row.task), cell(null, row.action),
      cell(null, mark(row.outcome)), cell('reward', number(row.reward, 4), 'num'),
      cell(null, row.reason), cell('executed s', number(row.exec_s), 'num'),
      cell('update', number(row.update), 'num'), cell('age', number(row.age), 'num'),
      cell(null, row.fate));
    line.addEventListener('click', (event) => {
      if (event.target !== open) this.open(row.id);
    });
    return line;
  }

  close() {
    this.id = null;
    this.group = false;
    $('detail').hidden = true;
    this.marked();
    this.opened(null);
  }

  marked() {
    for (const line of $('rollouts').tBodies[0].rows) {
      line.classList.toggle('open', line.dataset.id === this.id);
    }
  }

  async open(id, group = false) {
    const answer = await ask('rollout', { run: this.run, id, group: group ? '1' : '' });
    const first = this.id !== id || $('detail').hidden;
    [this.id, this.group] = [id, group];
    $('detail').hidden = false;
    $('detail-title').textContent = `Rollout ${id.replace(/~0$/, '').replace('~', ', restart ')}`;
    $('grouped').textContent = group ? 'this one alone' : 'group side by side';
    if (!answer || answer.error) {
      $('detail-body').replaceChildren(el('p', { class: 'muted' },
        answer ? answer.error : 'The server does not answer.'));
    } else {
      $('detail-body').replaceChildren(el('div', { class: 'members' },
        ...answer.rollouts.map((one) => article(one, group))));
    }
    this.marked();
    this.opened(id);
    if (first) {
      $('detail').scrollIntoView({ block: 'start' });
      $('detail').focus({ preventScroll: true });
    }
  }
}

function article(one, group) {
  const age = one.age === null ? '' : `, policy age ${one.age}`;
  const did = one.fate === 'trained' ? `learned from in update ${one.update}${age}` : one.fate;
  const spent = Object.entries(one.seconds).filter(([, s]) => s !== null)
    .map(([name, s]) => `${name} ${seconds(s)}`).join(', ');
  return el('article', {},
    group ? el('h3', {}, one.prompt_id + (one.restart ? `, restart ${one.restart}` : '')) : null,
    el('p', { class: 'line' }, mark(one.outcome), el('span', {}, one.task),
      el('span', {}, one.reward === null ? 'no reward' : `reward ${number(one.reward, 4)}`),
      one.reason ? el('span', { class: 'reason' }, `reason: ${one.reason}`) : null,
      el('span', {}, did), el('span', { class: 'muted' }, `group ${one.group}`)),
    spent ? el('p', { class: 'sub' }, `seconds: ${spent}`) : null,
    one.message ? el('p', { class: 'reason' }, one.message) : null,
    one.long ? el('p', { class: 'notice' }, 'Its line is over 1 MB; long texts are cut in the middle.') : null,
    one.bare ? el('p', { class: 'sub' }, 'Its texts are not in the files: an update that learns from it writes them.') : null,
    ...one.attempts.filter((a) => a.fault).map((a) => el('p', { class: 'sub' },
      `call ${number(a.call)}, attempt ${number(a.attempt)}: ${a.outcome} after ${seconds(a.seconds)}, `
      + `an infrastructure error: ${a.message || 'no message'}`)),
    ...one.shown.map((turn, i) => turnOf(turn, i, one.shown.length)),
    one.more_turns ? el('p', { class: 'sub' }, `${one.more_turns} more turns are not shown.`) : null);
}

function turnOf(turn, i, n) {
  const score = turn.score_before !== null || turn.score_after !== null
    ? `score ${number(turn.score_before, 5) || '–'} → ${number(turn.score_after, 5) || '–'}` : null;
  const part = (title, text) => (text ? [el('h4', {}, title), el('pre', {}, text)] : []);
  return el('div', { class: 'turn' },
    el('p', { class: 'line' }, n > 1 ? el('b', {}, `turn ${i + 1}`) : null,
      el('b', {}, turn.action || 'response'), mark(turn.outcome),
      el('span', {}, turn.reward === null ? 'no reward' : `reward ${number(turn.reward, 4)}`),
      turn.reason ? el('span', { class: 'reason' }, `reason: ${turn.reason}`) : null,
      score ? el('span', {}, score) : null,
      el('span', { class: 'muted' }, `${seconds(turn.exec_s)} executed`
        + (turn.policy === null ? '' : `, policy ${turn.policy}`)
        + (turn.tier ? `, isolation ${turn.tier}` : ''))),
    turn.untrusted ? el('p', { class: 'reason' }, `may have been cheated: ${turn.untrusted}`) : null,
    turn.undone ? el('p', { class: 'sub' }, 'The change was taken back: its run failed.') : null,
    turn.prompt ? el('details', {}, el('summary', {}, 'prompt'), el('pre', {}, turn.prompt)) : null,
    ...part('response', turn.response), ...code(turn.diff), ...part('output', turn.output));
}

function code(diff) {
  if (!diff) return [];
  const css = (line) => (/^(\+\+\+|---)/.test(line) ? 'file'
    : { '+': 'add', '-': 'del', '@': 'hunk' }[line[0]] || 'same');
  return [el('h4', {}, 'code'), el('pre', { class: 'diff' },
    ...diff.split('\n').map((line) => el('span', { class: css(line) }, line || ' ')))];
}
