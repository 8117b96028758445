"""Bias by duration: which samples enter updates, their gradient, and learning.

  python -m benchmarks.duration_bias [--json] [--quick] [--plot]

Bandits run through the real scheduler on a virtual clock, for each rest
policy x weighting x time-out. Measured, at a fixed policy: the mean
gradient against the synchronous unweighted one (`along`: its projection, 1
is unbiased; `bias`: norm of the difference, noise floor removed; both in
units of the synchronous gradient), the variance of one update's gradient;
then, learning: where the policy converges and how fast. The weights are those
of the training loop (`training/weighting.py`), derived in docs/duration_aware.md;
`capped` is `duration` cut at three times the mean.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
import types
from typing import Any

import numpy as np
from scipy import stats as sps

from benchmarks import machine
from jaxagent.clock import VirtualClock
from jaxagent.data.prompts import PromptSource
from jaxagent.rollout.records import CollectedBatch, SchedulerConfig
from jaxagent.rollout.requests import ExecutionRequest, Workers
from jaxagent.rollout.scheduler import Scheduler
from jaxagent.testing import bandit as pulls
from jaxagent.testing.fake_executor import Action, FakeExecutor
from jaxagent.testing.fake_sampler import ArmSampler
from jaxagent.testing.virtual_inbox import VirtualInbox
from jaxagent.training.weighting import step_weights
from jaxagent.types import Outcome

B = 48
WEIGHTINGS = ('none', 'duration', 'capped', 'inclusion')
ON_STALE = 'drop'


@dataclasses.dataclass(frozen=True)
class Setting:
  """A scheduler setting, by the name it has in the table."""

  name: str
  rest: str
  m: float = 1.0
  bound: int | None = None

  @property
  def wave(self) -> int:
    return math.ceil(self.m * B - 1e-9)

  @property
  def slots(self) -> int:
    return 2 * B if self.rest == 'carry_over' else self.wave

  def config(self) -> SchedulerConfig:
    return SchedulerConfig(
      batch_size=B,
      oversample=self.m,
      rest=self.rest,
      max_staleness=self.bound,
      on_stale=ON_STALE,
      watchdog_s=1e9,
    )


SETTINGS = (
  Setting('wait', 'wait'),
  Setting('carry_over', 'carry_over'),
  Setting('carry_over, drop at 1', 'carry_over', bound=1),
  Setting('cancel, m=1.25', 'cancel', 1.25),
  Setting('cancel, m=1.5', 'cancel', 1.5),
  Setting('cancel, m=2', 'cancel', 2.0),
)


class Bandit:
  """Arms with lognormal durations and noisy rewards.

  Args:
    name: for the table.
    median_s: [A] median durations in seconds.
    sigma: log-scale spread of every arm's duration.
    reward: [A] expected rewards of executions that end in time.
    start: [A] probabilities at which gradients are measured and learning
      starts; uniform if not given. (With two arms, an exact baseline and
      half and half, both arms push alike and no frequency bias can show.)
  """

  def __init__(self, name, median_s, sigma, reward, noise=0.2, start=None):
    self.name = name
    n = len(median_s)
    self.start = np.full(n, 1 / n) if start is None else np.asarray(start)
    self.median_s = np.asarray(median_s, float)
    self.sigma = sigma
    self.reward = np.asarray(reward, float)
    self.noise = noise

  def percentile(self, q: float) -> float:
    """Of the durations under the starting policy, seconds."""
    z = sps.norm.ppf((np.arange(2000) + 0.5) / 2000)
    d = np.exp(np.log(self.median_s)[:, None] + self.sigma * z[None]).ravel()
    weight = np.repeat(self.start, 2000)
    order = np.argsort(d)
    at = np.searchsorted(np.cumsum(weight[order]) / weight.sum(), q / 100)
    return float(d[order][at])

  def means(self, timeout_s: float) -> np.ndarray:
    """Expected rewards [A]; an execution that times out earns 0."""
    if not math.isfinite(timeout_s):
      return self.reward
    z = (math.log(timeout_s) - np.log(self.median_s)) / self.sigma
    return self.reward * sps.norm.cdf(z)

  def act(self, rng: np.random.Generator, timeout_s: float):
    """The executor's side: work -> Action."""

    def draw(work: ExecutionRequest) -> Action:
      arm = work.call.request.arm
      z, noise = rng.standard_normal(2)
      duration = self.median_s[arm] * math.exp(self.sigma * z)
      if duration > timeout_s:
        return Action(timeout_s, 0.0, Outcome.TIMEOUT)
      return Action(duration, self.reward[arm] + self.noise * noise)

    return draw


def bandits() -> tuple[Bandit, ...]:
  """The pair of the issue of bias, and twelve arms."""
  rng = np.random.default_rng(12)
  median = np.geomspace(0.5, 40.0, 12)
  reward = np.linspace(0.2, 0.6, 12) + 0.12 * rng.standard_normal(12)
  reward[9] = 0.9  # the best is slow, but not the slowest
  return (
    Bandit(
      'two arms (1 s poor, 20 s good)',
      [1.0, 20.0],
      0.1,
      [0.3, 0.7],
      start=[0.8, 0.2],
    ),
    Bandit('twelve arms (0.5 s to 40 s)', median, 0.5, reward),
  )


def weights_of(
  weighting: str, setting: Setting, batch: CollectedBatch
) -> tuple[np.ndarray, dict[str, float]]:
  """[n] with mean 1, by the loop's own function; and its metrics."""
  rl = types.SimpleNamespace(
    weighting='duration' if weighting == 'capped' else weighting,
    weight_cap=3.0 if weighting == 'capped' else 0.0,
    weight_mean='batch',
    rest=setting.rest,
    on_stale=ON_STALE,
  )
  return step_weights(rl, batch.samples, batch.sojourns)


def gradient(batch, logits, baseline, weights, truncate=2.0) -> np.ndarray:
  """Policy gradient [A]: mean of w * min(ratio, 2) * A * grad log pi."""
  logp = logits - logits.max()
  logp = logp - np.log(np.exp(logp).sum())
  pi = np.exp(logp)
  arms = np.array([int(s.token_ids[0]) for s in batch.samples])
  old = np.array([float(s.behaviour_logprobs[0]) for s in batch.samples])
  advantage = np.array([s.reward for s in batch.samples]) - baseline
  ratio = np.minimum(np.exp(logp[arms] - old), truncate)
  coef = weights * ratio * advantage
  grad = -coef.sum() * pi
  np.add.at(grad, arms, coef)
  return grad / len(arms)


def build(setting: Setting, bandit: Bandit, timeout_s: float, seed: int):
  """Scheduler, sampler and clock of one run."""
  inbox = VirtualInbox(VirtualClock())
  sampler = ArmSampler(inbox, np.log(bandit.start), seed)
  rng = np.random.default_rng([seed, 1])
  executor = FakeExecutor(inbox, bandit.act(rng, timeout_s), setting.slots)
  scheduler = Scheduler(
    PromptSource(range(10 * B), seed=seed),
    pulls.Bandit(),
    Workers(sampler, executor, inbox, inbox.clock),
    dataclasses.replace(setting.config(), seed=seed),
  )
  return scheduler, sampler, inbox.clock


def collect(scheduler, sampler, version: int) -> CollectedBatch:
  """The batch of `version`, whose policy draws from now on."""
  sampler.version = version
  return scheduler.next_batch(version)


# Measurements -----------------------------------------------------------------


def measure_gradient(
  setting: Setting, bandit: Bandit, timeout_s: float, n: int, burn: int
) -> dict[str, Any]:
  """All three weightings on the same batches, at the starting policy."""
  scheduler, sampler, clock = build(setting, bandit, timeout_s, 7)
  means = bandit.means(timeout_s)
  pi = bandit.start
  exact = pi * (means - pi @ means)
  free = pi * (bandit.reward - pi @ bandit.reward)
  grads: dict[str, list[np.ndarray]] = {w: [] for w in WEIGHTINGS}
  failures = 0.0
  share, first, durations = [], [], []
  for version in range(burn + n):
    batch = collect(scheduler, sampler, version)
    mean_s = float(np.mean([s.exec_s for s in batch.samples]))
    if version < 2:
      first.append(mean_s)
    if version >= burn:
      durations.append(mean_s)
      share.append(
        np.mean([s.token_ids[0] == len(pi) - 1 for s in batch.samples])
      )
      for w in WEIGHTINGS:
        weights, about = weights_of(w, setting, batch)
        failures += about.get('duration/inclusion_positivity_failures', 0.0)
        grads[w].append(gradient(batch, sampler.logits, pi @ means, weights))
    scheduler.mark_trained(batch.prompt_ids, version)
  scheduler.ledger.check()
  drops = scheduler.stats.total['dropped']
  return {
    'slowest_arm_share': float(np.mean(share)),
    'mean_trained_s': float(np.mean(durations)),
    'mean_trained_first_two_batches_s': float(np.mean(first)),
    'updates_per_hour': 3600 * (burn + n) / clock.now(),
    'positivity_failures': int(failures),
    'dropped': drops,
    'weightings': {
      w: summarize(np.array(g), exact, free) for w, g in grads.items()
    },
  }


def summarize(g: np.ndarray, exact: np.ndarray, free: np.ndarray):
  """g [n, A] gradients of single updates -> bias and variance, relative."""
  scale = float(exact @ exact)
  along = g @ exact / scale
  blocks = np.array([x.mean(0) for x in np.array_split(g, 25)])
  projected = np.array([x.mean() for x in np.array_split(along, 25)])
  half = sps.t.ppf(0.975, 24) * projected.std(ddof=1) / 5
  mean = g.mean(0)
  noise = blocks.var(0, ddof=1).sum() / 25

  def norm(b, target):
    m = b.mean(0)
    v = b.var(0, ddof=1).sum() / len(b)
    gap = max(0.0, float(((m - target) ** 2).sum() - v))
    return math.sqrt(gap / float(target @ target))

  rng = np.random.default_rng(0)
  boot = [norm(blocks[rng.integers(0, 25, 25)], exact) for _ in range(400)]
  cosine = mean @ exact / math.sqrt(scale * float(mean @ mean))
  return {
    'along': float(along.mean()),
    'along_ci95': [float(along.mean() - half), float(along.mean() + half)],
    'bias': norm(blocks, exact),
    'bias_ci95': [float(np.percentile(boot, q)) for q in (2.5, 97.5)],
    'noise_floor': math.sqrt(float(noise) / scale),
    'cosine': float(cosine),
    'variance': float(g.var(0, ddof=1).sum() / scale),
    'along_without_timeout': float(mean @ free / (free @ free)),
  }


def learn(
  setting: Setting,
  bandit: Bandit,
  timeout_s: float,
  weighting: str,
  seed: int,
  updates: int,
  lr: float,
) -> dict[str, Any]:
  """Policy gradient on the logits; what it converges to, and how fast."""
  scheduler, sampler, clock = build(setting, bandit, timeout_s, 100 + seed)
  best = int(np.argmax(bandit.means(timeout_s)))
  baseline, curve, reached = None, [], None
  for version in range(updates):
    batch = collect(scheduler, sampler, version)
    weights, _ = weights_of(weighting, setting, batch)
    mean = float(np.mean([s.reward for s in batch.samples]))
    baseline = mean if baseline is None else 0.8 * baseline + 0.2 * mean
    sampler.logits = sampler.logits + lr * gradient(
      batch, sampler.logits, baseline, weights
    )
    scheduler.mark_trained(batch.prompt_ids, version)
    p = float(np.exp(sampler.logprobs[best]))
    curve.append(p)
    if reached is None and p >= 0.8:
      reached = (version + 1, clock.now())
  pi = np.exp(sampler.logprobs)
  return {
    'p_best': curve[-1],
    'reward': float(pi @ bandit.means(timeout_s)),
    'updates_to_80': reached[0] if reached else None,
    'seconds_to_80': reached[1] if reached else None,
    'curve': [round(p, 4) for p in curve[:: max(1, updates // 40)]],
  }


def merge(runs: list[dict[str, Any]]) -> dict[str, Any]:
  """Means over seeds with 95 % intervals."""
  p = np.array([r['p_best'] for r in runs])
  done = [r for r in runs if r['updates_to_80'] is not None]
  half = (
    sps.t.ppf(0.975, len(p) - 1) * p.std(ddof=1) / math.sqrt(len(p))
    if len(p) > 1
    else float('nan')
  )

  def median(key):
    return float(np.median([r[key] for r in done])) if done else None

  return {
    'p_best': float(p.mean()),
    'p_best_half_ci95': float(half),
    'reward': float(np.mean([r['reward'] for r in runs])),
    'reached_80': f'{len(done)}/{len(runs)}',
    'updates_to_80': median('updates_to_80'),
    'seconds_to_80': median('seconds_to_80'),
    'curve': np.mean([r['curve'] for r in runs], 0).round(4).tolist(),
  }


def shares(updates: int = 400) -> list[dict[str, Any]]:
  """Two arms of exactly 1 s and 20 s, drawn half and half: who enters."""
  bandit = Bandit('pair', [1.0, 20.0], 0.0, [0.3, 0.7])
  rows = []
  for setting in SETTINGS:
    scheduler, sampler, _ = build(setting, bandit, math.inf, 3)
    samples: list[Any] = []
    for version in range(updates):
      batch = collect(scheduler, sampler, version)
      scheduler.mark_trained(batch.prompt_ids, version)
      samples += batch.samples
    slow = np.array([s.token_ids[0] == 1 for s in samples])
    d = np.array([s.exec_s for s in samples])
    rows.append(
      {
        'scheduler': setting.name,
        'fast': float(1 - slow.mean()),
        'slow': float(slow.mean()),
        'fast_weighted_by_duration': float(d[~slow].sum() / d.sum()),
        'slow_weighted_by_duration': float(d[slow].sum() / d.sum()),
      }
    )
  return rows


def run(n: int, seeds: int, updates: int, lr: float) -> dict[str, Any]:
  """The whole table."""
  rows = []
  for bandit in bandits():
    for limit in ('none', 'p95'):
      timeout_s = math.inf if limit == 'none' else bandit.percentile(95)
      for setting in SETTINGS:
        start = time.time()
        row = {
          'bandit': bandit.name,
          'timeout': limit,
          'timeout_s': None if limit == 'none' else timeout_s,
          'scheduler': setting.name,
          **measure_gradient(setting, bandit, timeout_s, n, burn=20),
        }
        for w in WEIGHTINGS:
          runs = [
            learn(setting, bandit, timeout_s, w, seed, updates, lr)
            for seed in range(seeds)
          ]
          row['weightings'][w]['learning'] = merge(runs)
        rows.append(row)
        print(
          f'{bandit.name[:6]} {limit} {setting.name}: '
          f'{time.time() - start:.0f} s',
          flush=True,
        )
  return {
    'batch_size': B,
    'batches': n,
    'seeds': seeds,
    'updates': updates,
    'learning_rate': lr,
    'bandits': [
      {
        'name': b.name,
        'median_s': b.median_s.tolist(),
        'sigma': b.sigma,
        'reward': b.reward.tolist(),
        'start': b.start.tolist(),
      }
      for b in bandits()
    ],
    'shares': shares(),
    'rows': rows,
  }


def shares_table(result: dict[str, Any]) -> str:
  """Markdown: who enters."""
  lines = [
    '| rest | fast / slow, % of samples | fast / slow, % of the weight d |',
    '|---|---|---|',
  ]
  for row in result['shares']:
    cells = [
      f'{100 * row["fast" + by]:.0f} / {100 * row["slow" + by]:.0f}'
      for by in ('', '_weighted_by_duration')
    ]
    lines.append(f'| {row["scheduler"]} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def table(
  result: dict[str, Any], timeouts: tuple[str, ...] = ('none', 'p95')
) -> str:
  """Markdown. Where nothing is dropped `inclusion` is `none`: one row."""
  lines = []
  for bandit in dict.fromkeys(r['bandit'] for r in result['rows']):
    lines += [
      f'**{bandit}**',
      '',
      '| time-out | rest | weighting | along (1 = unbiased) | bias | '
      'variance | P(best) at the end | updates to 80 % | seconds to 80 % |',
      '|---|---|---|---|---|---|---|---|---|',
    ]
    for row in result['rows']:
      if row['bandit'] != bandit or row['timeout'] not in timeouts:
        continue
      for w, v in row['weightings'].items():
        if w == 'inclusion' and row['scheduler'] in ('wait', 'carry_over'):
          continue
        lo, hi = v['along_ci95']
        blo, bhi = v['bias_ci95']
        k = v['learning']
        u, s = k['updates_to_80'], k['seconds_to_80']
        lines.append(
          f'| {row["timeout"]} | {row["scheduler"]} | {w} | '
          f'{v["along"]:.2f} [{lo:.2f}, {hi:.2f}] | '
          f'{v["bias"]:.2f} [{blo:.2f}, {bhi:.2f}] | '
          f'{v["variance"]:.2f} | '
          f'{k["p_best"]:.2f} ± {k["p_best_half_ci95"]:.2f} | '
          f'{"never" if u is None else f"{u:.0f}"} | '
          f'{"never" if s is None else f"{s:.0f}"} |'
        )
    lines.append('')
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--json', action='store_true', help='save the result')
  parser.add_argument('--quick', action='store_true', help='a minute, rough')
  args = parser.parse_args()
  if args.quick:
    result = run(n=60, seeds=2, updates=40, lr=4.0)
  else:
    result = run(n=400, seeds=4, updates=120, lr=1.0)
  print(table(result))
  if args.json:
    print(machine.save('duration_bias', result))
  else:
    print(json.dumps({'rows': len(result['rows'])}))


if __name__ == '__main__':
  main()
