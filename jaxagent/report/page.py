"""Builds the report's page from plain records; the template lays it out.

Everything a model wrote is hostile: the template escapes all of it, control
characters are made visible, and the page's content security policy admits
only the one script that ships with it, by hash, and no address at all.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import hashlib
import math
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2

from jaxagent import metrics as metrics_lib
from jaxagent.analysis import needed
from jaxagent.records import Evaluated, TakenStep
from jaxagent.report import charts
from jaxagent.types import OPERATORS

_HERE = pathlib.Path(__file__).parent
STYLE = _HERE / 'style.html'  # CSS alone, of the live page, too
Shown = tuple[str, Evaluated]  # whose, and what they did
POLICIES = (('starter', 'Starter'), ('sft', 'SFT'), ('rl', 'RL'))
SPLITS = (('heldin', 'Held-in'), ('heldout', 'Held-out'))
MEASURES = (
  ('mean_reward', 'Mean reward', ''),  # REWARD's
  ('avg_at_k', 'avg@K', 'normalised: 0 starter, 1 best known'),
  ('best_at_k', 'best@K', 'normalised: 0 starter, 1 best known'),
  ('relative_gain', 'Relative gain', 'over the starter script'),
  ('valid_action_rate', 'Valid actions', 'share of responses'),
)
# By the kind of run: what a reward is of, and what to know of behaviour.
REWARD = {
  'step': (
    'of a step, 0 to 1',
    'A valid action that changes nothing earns 0.5: a policy that stops to edit '
    'shows here.',
  ),
  'solution': (
    'of a solution, about -10 to 1',
    'A solution that fails earns -10 and 0.1 for each milestone, a valid one its '
    'score.',
  ),
}
# Title, note, and the metrics drawn together; the first is also smoothed.
PANELS = (
  ('Reward', 'mean of the batch', (('critic/score/mean', 'reward'),)),
  (
    'Validation',
    'reward, mean of its prompts',
    (('val/reward/mean', 'reward'),),
  ),
  ('Entropy', 'nats per token', (('actor/entropy', 'entropy'),)),
  ('KL to the reference', 'per token', (('actor/kl_loss', 'KL'),)),
  (
    'Valid actions',
    'share of responses',
    (('sandbox/valid_action_rate', 'valid'),),
  ),
  (
    'Malformed',
    'share of responses',
    (('sandbox/malformed_rate', 'malformed'),),
  ),
  (
    'Behaviour',
    'share of responses',
    (
      ('sandbox/edit_rate', 'edits'),
      ('sandbox/changed_rate', 'changed the script'),
    ),
  ),
  (
    'Staleness',
    'updates',
    (('staleness/mean', 'mean'), ('staleness/max', 'largest')),
  ),
  (
    'Execution',
    'seconds',
    (('duration/trained/mean', 'mean'), ('duration/trained/p95', 'p95')),
  ),
  (
    'Solutions',
    'share',
    (
      ('solution/valid_rate', 'valid'),
      ('solution/improve_rate', 'from a previous one'),
    ),
  ),
  *(
    (title, note, tuple((f'solution/{name}/{one}', one) for one in OPERATORS))
    for title, note, name in (
      ('Operators', 'share of the prompts', 'share'),
      ('Valid by operator', 'share', 'valid'),
      ('Gain by operator', 'reward over the better parent', 'gain'),
      ('New best by operator', 'share', 'new_best'),
    )
  ),
  (
    'Milestones',
    'of solutions that failed',
    (('solution/milestones', 'reached'),),
  ),
  ('Gradient norm', 'before clipping', (('actor/grad_norm', 'norm'),)),
  ('Value loss', '', (('critic/vf_loss', 'loss'),)),
  ('Response length', 'tokens', (('response_length/mean', 'mean'),)),
)
SFT_PANELS = (
  ('SFT loss', 'nats per token', (('sft/loss', 'loss'),)),
  ('SFT gradient norm', 'before clipping', (('sft/grad_norm', 'norm'),)),
)
# Figures of jaxagent/analysis/behaviour.py, and the summary's parts they are of.
BEHAVIOUR = (
  ('responses', 'Responses', ''),
  ('edit_rate', 'Edits', 'of responses'),
  ('changed_rate', 'Changed the script', 'of responses; its run was ok'),
  ('distinct_edits', 'Different edits', 'of edits'),
  ('malformed_rate', 'Malformed', 'of responses'),
  ('valid_action_rate', 'Valid actions', 'of responses'),
  ('timeout_rate', 'Timed out', 'of executions'),
  ('exec_s', 'Execution', 'mean seconds'),
)
BEHAVIOUR_PARTS = (
  ('train', 'first_quarter', 'Training, first quarter'),
  ('train', 'last_quarter', 'Training, last quarter'),
  ('sft', 'heldin', 'SFT held-in'),
  ('rl', 'heldin', 'RL held-in'),
  ('sft', 'heldout', 'SFT held-out'),
  ('rl', 'heldout', 'RL held-out'),
)
_FACTS = (
  'config_sha',
  'isolation_tier',
  'stand_ins',
  'untrusted',
  'executions',
  'versions',
)
_TEXT_LIMIT = 20_000
# C0 and C1 controls, bidirectional overrides, lone surrogates.
_CONTROL = re.compile(
  '[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069'
  '\ud800-\udfff]'
)

_HEADING = re.compile(
  r'^(Reflection|Research Plan and Status|Fact Check|Thought|Action Input'
  r'|Action):',
  re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class Contents:
  """Parts of a report.

  summary: as `summary.json` (jaxagent/analysis/summary.py); missing parts are left out.
  metrics_jsonl: the RL stage's metrics; a missing file draws no curves.
  trajectories: (policy, trajectory) each; thought and input of a step are read from
    its response.
  durations: execution seconds of the run, > 0.
  tasks: each {name (or task), split, modality, metric, higher_is_better, m_init, m_best,
    starter, sft, rl}; the last three a score, an interval or None.
  sft_metrics_jsonl: those of SFT; by default `sft/` beside the RL stage's.
  """

  summary: Mapping[str, Any]
  metrics_jsonl: str | os.PathLike
  trajectories: Sequence[Shown]
  durations: Sequence[float]
  tasks: Sequence[Mapping[str, Any]]
  sft_metrics_jsonl: str | os.PathLike | None = None


def write_report(
  path: str | os.PathLike,
  contents: Contents,
  *,
  title: str = 'jaxagent run',
  max_trajectories: int = 150,
) -> pathlib.Path:
  """Writes the report to `path`, atomically, and returns it.

  max_trajectories: of all that are shown, spread over policies and tasks.
  """
  summary, durations = contents.summary, contents.durations
  records = _records(contents.metrics_jsonl)
  sft_metrics_jsonl = contents.sft_metrics_jsonl
  if sft_metrics_jsonl is None:
    rl = pathlib.Path(contents.metrics_jsonl)
    sft_metrics_jsonl = rl.parent / 'sft/metrics.jsonl'
  shown = _spread(contents.trajectories, max_trajectories)
  script = (_HERE / 'report_script.html').read_text(encoding='utf-8')
  page = (
    environment()
    .get_template('report.html.j2')
    .render(
      title=title,
      made=datetime.datetime.now(datetime.UTC).strftime('%Y-%m-%d %H:%M UTC'),
      summary={k: summary.get(k) for k in _FACTS},
      standin_data=(summary.get('extra') or {}).get('standin_data') or [],
      recorded=(summary.get('extra') or {}).get('recorded_executions') or 0,
      tiles=_tiles(summary),
      splits=_comparison(summary),
      policies=POLICIES,
      panels=_panels(records, PANELS, 'update'),
      sft_panels=_panels(_records(sft_metrics_jsonl), SFT_PANELS, 'step'),
      behaviour=_behaviour(summary),
      tasks=_task_rows(contents.tasks),
      whole_test=_whole_test(summary),
      chosen=_chosen(summary, contents.tasks),
      needed_text=needed.text,
      histogram=charts.log_histogram(list(durations), 'seconds'),
      duration_facts=_quantiles(durations),
      outcomes=_outcomes(summary),
      seconds=_seconds(summary),
      stages=_stages(summary),
      trajectories=[_trajectory(*t, i) for i, t in enumerate(shown)],
      total_trajectories=len(contents.trajectories),
      script=script,
      script_hash=_script_hash(script),
    )
  )
  return write_page(path, page)


def write_page(path: str | os.PathLike, page: str) -> pathlib.Path:
  """Atomically; returns the path."""
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  part = path.with_name(path.name + '.part')
  part.write_text(page, encoding='utf-8')
  os.replace(part, path)
  return path


def clean(text: Any) -> str:
  """Text made safe to show: controls visible as escapes, length bounded."""
  text = '' if text is None else str(text)
  if len(text) > _TEXT_LIMIT:
    cut = len(text) - _TEXT_LIMIT
    half = _TEXT_LIMIT // 2
    text = f'{text[:half]}\n[... {cut} characters left out ...]\n{text[-half:]}'
  text = text.replace('\r\n', '\n')
  return _CONTROL.sub(
    lambda m: m.group().encode('unicode_escape').decode('ascii'), text
  )


def environment() -> jinja2.Environment:
  """Returns the environment of the report's templates, with their filters."""
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_HERE),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  environment.filters['number'] = charts.number
  environment.filters['clean'] = clean
  return environment


def _script_hash(script: str) -> str:
  digest = hashlib.sha256(script.encode('utf-8')).digest()
  return 'sha256-' + base64.b64encode(digest).decode('ascii')


def _records(path: str | os.PathLike | None) -> list[dict[str, Any]]:
  if path is None or not pathlib.Path(path).exists():
    return []
  return metrics_lib.read_records(path)


def _tiles(summary: Mapping) -> list[dict[str, Any]]:
  """The headline: reward before and after, and how sure the difference is."""
  tiles = []
  for split, name in SPLITS:
    before = _interval(summary, 'sft', split, 'mean_reward')
    after = _interval(summary, 'rl', split, 'mean_reward')
    if not before or not after:
      continue
    if after['low'] > before['high']:
      verdict, css = 'higher, intervals apart', 'good'
    elif after['high'] < before['low']:
      verdict, css = 'lower, intervals apart', 'bad'
    else:
      verdict, css = 'intervals overlap', 'even'
    tiles.append(
      dict(
        name=name,
        before=before,
        after=after,
        verdict=verdict,
        css=css,
        needs=needed.text(after) or needed.text(before),
      )
    )
  return tiles


def _reward_notes(summary: Mapping) -> tuple[str, str]:
  """REWARD of the run; `evaluation.start` tells its kind (docs/summary.md)."""
  start = (summary.get('evaluation') or {}).get('start')
  return REWARD['solution' if start == 'scratch and improved' else 'step']


def _interval(
  summary: Mapping[str, Any], policy: str, split: str, name: str
) -> dict | None:
  value = (summary.get(policy) or {}).get(split, {}).get(name)
  return value if value and value.get('mean') is not None else None


def _comparison(summary: Mapping) -> list[dict[str, Any]]:
  """Returns one forest plot for each split and measure, on shared axes."""
  measures = []
  for key, label, note in MEASURES:
    cells = {
      (s, p): _interval(summary, p, s, key)
      for s, _ in SPLITS
      for p, _ in POLICIES
    }
    ends = [v[e] for v in cells.values() if v for e in ('low', 'high', 'mean')]
    if not ends:
      continue
    low, high = min(0.0, *ends), max(ends)
    plots = {
      split: charts.forest(
        [(name, p, cells[split, p]) for p, name in POLICIES], low, high
      )
      for split, _ in SPLITS
    }
    note = note or _reward_notes(summary)[0]
    needs = {
      f'{name}: {text}'
      for split, name in SPLITS
      for policy, _ in POLICIES
      if (text := needed.text(cells[split, policy] or {}))
    }
    measures.append(
      dict(
        label=label,
        note=note,
        plots=plots,
        cells=cells,
        needs='; '.join(sorted(needs)),
      )
    )
  return measures


def _behaviour(summary: Mapping) -> dict[str, Any] | None:
  """Returns the policies' behaviour, one row a figure; None if unknown."""
  held = summary.get('behaviour') or {}
  columns = [
    (name, held[who][part])
    for who, part, name in BEHAVIOUR_PARTS
    if part in (held.get(who) or {})
  ]
  if not columns:
    return None
  rows = [
    dict(label=label, note=note, cells=[c.get(key) for _, c in columns])
    for key, label, note in BEHAVIOUR
  ]
  note = _reward_notes(summary)[1]
  return dict(columns=[name for name, _ in columns], rows=rows, note=note)


def _panels(records: Any, panels: Any, x_label: str) -> list[dict[str, Any]]:
  out = []
  for title, note, names in panels:
    series, legend = [], []
    for i, (name, label) in enumerate(names):
      points = [
        (float(r['step']), float(r[name]))
        for r in records
        if r.get(name) is not None
      ]
      if not points:
        continue
      if len(points) >= 12 and len(names) == 1:
        width = max(3, len(points) // 8)
        series.append((label, f's{i} faint', _thin(points)))
        series.append(
          (
            f'{label}, running mean',
            f's{i}',
            _thin(charts.smooth(points, width)),
          )
        )
      else:
        series.append((label, f's{i}', _thin(points)))
      legend.append((label, f's{i}', points[-1][1]))
    if series:
      out.append(
        dict(
          title=title,
          note=note,
          legend=legend,
          svg=charts.line_chart(title, series, x_label),
        )
      )
  return out


def _thin(points: Sequence, most: int = 400) -> list:
  """Keeps up to `most` points, evenly spaced, the last one always."""
  stride = math.ceil(len(points) / most)
  return list(points) if stride <= 1 else [*points[:-1:stride], points[-1]]


def _task_rows(tasks: Iterable[Mapping]) -> list[dict[str, Any]]:
  """Per-task scores; `best` marks the policy with the best mean."""
  rows = []
  for task in tasks:
    higher = bool(task.get('higher_is_better', True))
    cells = {p: _cell(task.get(p)) for p, _ in POLICIES}
    known = {p: c['mean'] for p, c in cells.items() if c}
    best = (max if higher else min)(known.values()) if known else None
    rows.append(
      dict(
        name=str(task.get('name') or task.get('task') or '?'),
        split=dict(SPLITS).get(str(task.get('split')), '–'),
        modality=str(task.get('modality', '–')),
        metric=str(task.get('metric', '–')),
        arrow='↑' if higher else '↓',
        m_init=task.get('m_init'),
        m_best=task.get('m_best'),
        cells=cells,
        best={p for p, m in known.items() if m == best}
        if len(known) > 1
        else (),
      )
    )
  return sorted(rows, key=lambda r: (r['split'] != 'Held-in', r['name']))


def _whole_test(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
  """Returns a row for each task and policy with scores on the whole hidden test."""
  tasks = (summary.get('extra') or {}).get('whole_test') or {}
  return [
    dict(
      name=task,
      trained_on=one['trained_on'],
      standin=one['standin'],
      arrow='↑' if one['higher_is_better'] else '↓',
      metric=one['metric'],
      note=one['note'],
      policy=dict(POLICIES).get(policy, policy),
      board=one['board'],
      figures=figures,
    )
    for task, one in sorted(tasks.items())
    for policy, figures in one['policies'].items()
  ]


def _chosen(
  summary: Mapping[str, Any], tasks: Iterable[Mapping]
) -> list[dict[str, Any]]:
  """Returns a row for each task, policy and K with what validation chooses from K."""
  solutions = (summary.get('extra') or {}).get('solutions') or {}
  arrows = {row['name']: row['arrow'] for row in _task_rows(tasks)}
  return [
    dict(
      name=task,
      arrow=arrows.get(task, ''),
      policy=dict(POLICIES).get(policy, policy),
      k=int(k),
      **figures,
    )
    for task in sorted({task for table in solutions.values() for task in table})
    for policy, table in solutions.items()
    for k, figures in (table[task]['scratch'].get('chosen') or {}).items()
  ]


def _cell(value: Any) -> dict | None:
  if value is None:
    return None
  if isinstance(value, Mapping):
    return dict(value) if value.get('mean') is not None else None
  return {'mean': float(value), 'low': None, 'high': None}


def _quantiles(durations: Sequence[float]) -> list[tuple[str, float]]:
  values = sorted(d for d in durations if d > 0 and math.isfinite(d))
  if not values:
    return []

  def at(q: float) -> float:
    return values[min(len(values) - 1, math.floor(q * len(values)))]

  return [
    ('executions', len(values)),
    ('median', at(0.5)),
    ('95th percentile', at(0.95)),
    ('99th percentile', at(0.99)),
    ('longest', values[-1]),
  ]


def _outcomes(summary: Mapping) -> list[tuple[str, int, float, float]]:
  counts = summary.get('outcomes') or {}
  total = sum(counts.values()) or 1
  top = max(counts.values(), default=1) or 1
  rows = sorted(counts.items(), key=lambda item: -item[1])
  return [(name, n, n / total, 100 * n / top) for name, n in rows if n]


def _seconds(summary: Mapping) -> list[tuple[str, str, int, float]]:
  """(task, outcome, count, seconds) of RL's executions, the most seconds first."""
  held = (summary.get('extra') or {}).get('rl_seconds') or {}
  rows = [
    (task or 'unknown', outcome, cell['count'], cell['exec_s'])
    for task, outcomes in held.items()
    for outcome, cell in outcomes.items()
  ]
  return sorted(rows, key=lambda row: -row[3])


def _stages(summary: Mapping) -> list[tuple[str, float, float]]:
  wall = summary.get('wall_s') or {}
  total = sum(wall.values()) or 1.0
  return [(name, s, 100 * s / total) for name, s in wall.items()]


def _spread(trajectories: Sequence[Shown], most: int) -> list[Shown]:
  """Picks up to `most`, taken in turn from every (policy, task)."""
  if len(trajectories) <= most:
    return list(trajectories)
  groups: dict[tuple, list] = {}
  for policy, item in trajectories:
    groups.setdefault((policy, item.task), []).append((policy, item))
  picked: list[Shown] = []
  depth = 0
  while len(picked) < most:
    layer = [g[depth] for g in groups.values() if depth < len(g)]
    picked += layer[: most - len(picked)]
    depth += 1
  return picked


def _trajectory(
  policy: str, trajectory: Evaluated, index: int
) -> dict[str, Any]:
  steps = [step_of(s, i) for i, s in enumerate(trajectory.steps)]
  scores = [s['score_after'] for s in steps if s['score_after'] is not None]
  rewards = [s['reward'] for s in steps if s['reward'] is not None]
  return dict(
    id=str(index),
    policy=clean(policy),
    task=clean(trajectory.task),
    split=dict(SPLITS).get(trajectory.split, ''),
    steps=steps,
    outcomes=' '.join(sorted({s['outcome'] for s in steps})),
    start=next(
      (s['score_before'] for s in steps if s['score_before'] is not None), None
    ),
    end=scores[-1] if scores else None,
    reward=sum(rewards) / len(rewards) if rewards else None,
    exec_s=sum(s['exec_s'] for s in steps),
  )


def step_of(step: TakenStep, index: int) -> dict[str, Any]:
  """A step as a page shows it: texts made safe, numbers or None."""
  record = step.record
  entries = _entries(record.response)
  return dict(
    step=getattr(record, 'step', index),
    thought=clean(entries.get('Thought')),
    response=clean(record.response),
    action=clean(record.action or entries.get('Action')),
    action_input=clean(entries.get('Action Input')),
    diff=[_diff_line(x) for x in clean(record.diff).splitlines()],
    output=clean(record.observation),
    outcome=record.outcome.value,
    reward=_optional(step.reward),
    exec_s=float(record.exec_s),
    score_before=_optional(record.score_before),
    score_after=_optional(record.score_after),
  )


def _entries(response: str) -> dict[str, str]:
  """Entries of a response (paper 000, table 6) by their headings, for show.

  Lenient on purpose: what the environment took the response for is in
  `outcome`; whole responses can be opened beside it.
  """
  parts = _HEADING.split(response)
  return {k: v.strip() for k, v in zip(parts[1::2], parts[2::2])}


def _diff_line(line: str) -> tuple[str, str]:
  if line.startswith(('+++', '---')):
    return 'file', line
  return {'+': 'add', '-': 'del', '@': 'hunk'}.get(line[:1], 'same'), line


def _optional(value: Any) -> float | None:
  return None if value is None else float(value)
