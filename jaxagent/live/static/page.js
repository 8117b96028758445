// What every part of the page uses. Texts become text nodes, never markup.

export const $ = (id) => document.getElementById(id);

export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'on') node.addEventListener('click', value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined)
    .map((c) => (c instanceof Node ? c : document.createTextNode(String(c)))));
  return node;
}

// Answers of the server; null where it does not answer, {error} where it refuses.
export async function ask(what, question) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(question || {})) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== '' && one !== null && one !== undefined) query.append(name, one);
    }
  }
  try {
    const answer = await fetch(`/api/${what}?${query}`);
    return await answer.json();
  } catch {
    return null;
  }
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return '';
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value);
  return String(Number(value.toPrecision(digits)));
}

export function seconds(value) {
  return value === null || value === undefined ? '' : `${number(value)} s`;
}

export function clock(at) {
  if (at === null || at === undefined) return '';
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

const OURS = ['infrastructure', 'deadline', 'grader_error'];
const LIMITS = ['timeout', 'oom', 'killed', 'output_limit', 'disk_limit'];
const FORMS = ['invalid_format', 'invalid_action', 'no_submission', 'invalid_submission'];

// ok, warn (a limit), bad (an error), fault (not the policy's), none.
export function kind(outcome) {
  if (outcome === 'ok') return 'ok';
  if (LIMITS.includes(outcome)) return 'warn';
  if (OURS.includes(outcome)) return 'fault';
  if (FORMS.includes(outcome)) return 'none';
  return outcome ? 'bad' : 'none';
}

export function mark(outcome) {
  return outcome ? el('span', { class: `mark ${kind(outcome)}` }, outcome) : '';
}

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// Keeps what is chosen, where it is still there.
export function choices(select, values, first) {
  const kept = select.value;
  const made = JSON.stringify(values);
  if (select.dataset.made === made) return;
  select.dataset.made = made;
  select.replaceChildren(...(first === undefined ? [] : [el('option', { value: '' }, first)]),
    ...values.map(([value, label]) => el('option', { value }, label)));
  if (values.some(([value]) => value === kept)) select.value = kept;
}
