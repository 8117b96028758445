// Asks every second what changed, and asks for that.

import { $, ask, choices, el, number } from './page.js';
import { Curves } from './curves.js';
import { Lanes } from './lanes.js';
import { Rollouts } from './rollouts.js';

const EVERY_MS = 1000; const HIDDEN_MS = 10000; const LANES_MS = 2000; const RUNS_MS = 3000;

const place = new URLSearchParams(location.hash.slice(1));
const rollouts = new Rollouts((id) => put('rollout', id));
const curves = new Curves();
const lanes = new Lanes((id) => rollouts.open(id));
let stamps = {};
let lanesAt = 0; let runsAt = 0;

function put(name, value) {
  if (value) place.set(name, value);
  else place.delete(name);
  history.replaceState(null, '', `#${place}`);
}

function say(text) {
  $('waiting').hidden = !text;
  $('waiting').textContent = text || '';
}

async function findRuns() {
  const found = await ask('runs');
  if (!found) {
    say('The server does not answer; this page asks on.');
    return;
  }
  runsAt = Date.now();
  $('root').textContent = found.root;
  const names = found.runs.map((one) => [one.name,
    `${one.name === '.' ? 'this folder' : one.name} (${one.status})`]);
  choices($('run'), names);
  choices($('with'), names, 'none');
  const there = names.map(([name]) => name);
  if (place.get('run') && there.includes(place.get('run'))) $('run').value = place.get('run');
  if (place.get('with') && there.includes(place.get('with'))) $('with').value = place.get('with');
  if (!names.length) {
    const blind = found.unreadable.length
      ? `; no permission to read ${found.unreadable.join(', ')}` : '';
    const why = found.problem ? `it ${found.problem}` : `no run is in it so far${blind}`;
    say(`Waiting for a run in ${found.root}: ${why}.`);
    $('shown').hidden = true;
  } else if (place.get('run') && !there.includes(place.get('run'))) {
    say(`Run ${place.get('run')} is gone; waiting for it to come back. Others can be chosen above.`);
  } else {
    const blind = found.unreadable.length
      ? `No permission to read ${found.unreadable.join(', ')}. ` : '';
    say(blind + (found.more ? 'There are more runs than are listed.' : ''));
  }
}

function facts(state) {
  const { facts: known } = state;
  const text = (label, value) => el('span', {}, `${label} `, el('b', {}, value));
  $('facts').replaceChildren(
    el('span', { class: `status ${state.status}` }, state.status),
    text('updates', number(state.updates) + (known.updates ? ` of ${known.updates}` : '')),
    text('rollouts', number(state.rollouts)),
    ...['variant', 'seed', 'batch', 'group'].filter((name) => known[name])
      .map((name) => text(name, known[name])),
    ...(state.read < 1 ? [text('files read', `${Math.floor(100 * state.read)} %`)] : []));
  $('problems').hidden = !state.problems.length;
  $('problems').replaceChildren(...state.problems.map((one) => el('li', {}, one)));
}

function compared(states) {
  $('compare').hidden = states.length < 2;
  if (states.length < 2) return;
  const names = (part) => [...new Set(states.flatMap((s) => Object.keys(s.counts[part])))].filter(Boolean);
  const share = (state, part, name) => {
    const n = state.counts[part][name] || 0;
    return `${n} (${number((100 * n) / (state.rollouts || 1))} %)`;
  };
  const rows = [
    ['', ...states.map((s) => s.name)], ['status', ...states.map((s) => s.status)],
    ['updates', ...states.map((s) => s.updates)],
    ['reward, last update', ...states.map((s) => number(s.reward, 4))],
    ['rollouts', ...states.map((s) => s.rollouts)],
    ...['outcome', 'task'].flatMap((part) => names(part).map((name) => [
      `${part} ${name}`, ...states.map((s) => share(s, part, name))])),
  ];
  $('compare-table').replaceChildren(...rows.map((row, i) => el('tr', {},
    ...row.map((cell, j) => el(i && j ? 'td' : 'th', {}, cell)))));
}

async function look() {
  if (Date.now() - runsAt > RUNS_MS) await findRuns();
  const run = $('run').value;
  const other = $('with').value === run ? '' : $('with').value;
  if (!run || (place.get('run') && place.get('run') !== run)) return EVERY_MS;
  const [state, second] = await Promise.all([
    ask('state', { run }), other ? ask('state', { run: other }) : null]);
  if (!state) {
    say('The server does not answer; this page asks on.');
    return EVERY_MS;
  }
  if (state.error) {
    runsAt = 0;
    say(`Run ${run} is gone; waiting for it to come back.`);
    return EVERY_MS;
  }
  $('shown').hidden = false;
  if (!place.get('run')) put('run', run); // the address is of this run, whatever comes
  facts(state);
  rollouts.counts(state.counts);
  compared(second && !second.error ? [state, second] : [state]);
  const now = JSON.stringify({ run, ...state.stamps });
  const fresh = (part) => JSON.stringify([run, other, state.stamps[part],
    second && second.stamps && second.stamps[part]]);
  const waits = [];
  if (stamps.rollouts !== fresh('rollouts')) {
    const isNew = rollouts.run !== run;
    if (isNew || rollouts.newest) {
      stamps.rollouts = fresh('rollouts');
      waits.push(rollouts.load(run));
    }
  }
  if (stamps.curves !== fresh('curves')) {
    stamps.curves = fresh('curves');
    waits.push(curves.load(run, other));
  }
  const following = lanes.end === null && Date.now() - lanesAt > LANES_MS;
  if (lanes.run !== run || (following && stamps.lanes !== now)) {
    lanesAt = Date.now();
    stamps.lanes = now;
    waits.push(lanes.load(run));
  }
  await Promise.all(waits);
  if (place.get('rollout') && !rollouts.id) await rollouts.open(place.get('rollout'));
  return state.read < 1 ? EVERY_MS / 4 : EVERY_MS;
}

async function forever() {
  for (;;) {
    let wait = EVERY_MS;
    try {
      wait = await look();
    } catch (error) {
      console.error(error);
    }
    await new Promise((go) => { setTimeout(go, document.hidden ? HIDDEN_MS : wait); });
  }
}

$('run').addEventListener('change', () => {
  put('rollout', null);
  put('run', $('run').value);
  say('');
  look();
});
$('with').addEventListener('change', () => { put('with', $('with').value); look(); });
new ResizeObserver(() => lanes.draw()).observe($('lanes').parentElement);
addEventListener('hashchange', () => location.reload()); // put() does not cause it
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  lanes.draw();
  curves.load();
});
forever();
