"""Options of a run and its stages: collect, SFT, RL, evaluation, search."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from jaxagent.analysis import summary
from jaxagent.data.solution_pool import PARENTS
from jaxagent.envs import agents, operators
from jaxagent.envs.specs import descriptions, task_yaml2
from jaxagent.interactions import MAX_CALLS
from jaxagent.learner.config import (
  GROUPED,
  OF_THE_BEST,
  LearnerOptions,
  SftOptions,
)
from jaxagent.options import Section, as_dict, must, option, relation
from jaxagent.rewards.mle import FAILURE, SCALES
from jaxagent.rollout.config import SchedulerOptions

_MOST_STEPS = MAX_CALLS // 2  # a completion and an execution each
_IMPROVE = 0.5  # share of improvements, the paper's


@dataclasses.dataclass(frozen=True)
class RunConfig(Section):
  """Name, stages, seed and folders of a run; the keys without a section."""

  name: str = option('base', help='Name of the experiment.')
  variant: str = option('tiny', help='Name of the variant.')
  recipe: str = option(
    'stepwise',
    help='The experiment: stepwise, episodewise, solutions, tree_search, agents, ideator; '
    'or your own, module:Class or FILE.py:Class.',
  )
  stage: str = option(
    'all',
    help='What of the recipe is run: all; or of some recipes collect, sft (up to '
    'it) or evaluate (of a trained policy).',
  )
  seed: int = option(
    0, least=0, most=2**31 - 1, help='Seed of everything that is drawn.'
  )
  work_dir: str = option(
    'workdir/base',
    is_path=True,
    check=must(
      lambda path: str(path).strip(),
      'is empty; say where results go with --work_dir.',
    ),
    help='Where results go.',
  )
  tasks_dir: str = option(
    'tasks', is_path=True, help='Folder of the tasks.', advanced=True
  )
  compile_cache: str = option(
    'auto',
    is_path=True,
    check=must(
      lambda folder: str(folder).strip(),
      "is empty; give 'auto', a folder, or 'off'.",
    ),
    help='Folder of compiled programs for the next start; auto: '
    "jaxagent/compiled in the user's cache folder, for a run of one process; "
    'off: none.',
    advanced=True,
  )
  dry_run: bool = option(False, help='Print the plan and stop.')
  agent: str = option(
    'research',
    choices=tuple(agents.AGENTS),
    help='How a step-wise policy is prompted, in the full style, and answers; '
    'random: recipe agents alone.',
  )
  trackers: tuple[str, ...] = option(
    ('tensorboard',),
    choices=('tensorboard', 'wandb', 'trackio', 'mlflow'),
    help='Where metrics go beside logs/metrics.jsonl; () is nowhere else. Those but '
    'tensorboard are extras, with a process of their own each (docs/trackers.md).',
  )


@dataclasses.dataclass(frozen=True)
class TaskOptions(Section):
  """Names of tasks."""

  heldin: tuple[str, ...] = option(
    (),
    help='Tasks to train on, names or patterns such as paper:000/train, '
    'suite:mlebench/low, kind:span, name:tab*; (): every bundled one of that split.',
  )
  heldout: tuple[str, ...] = option(
    (),
    help='Tasks for evaluation alone, as heldin; (): every bundled one of that '
    'split.',
    advanced=True,
  )
  data: str = option(
    'standin',
    choices=task_yaml2.VARIANTS,
    help='Data of the catalogue: made by code, stand-ins of files of packages where a '
    'task takes any, prepared by mle-bench, or the original files.',
    advanced=True,
  )
  data_dir: str = option(
    '',
    is_path=True,
    help="Folder of that data, mle-bench's or one with a folder a task, or what `pip "
    "install --no-deps --target` wrote; '': none, as stand-ins have.",
    advanced=True,
  )
  as_published: bool = option(
    False,
    help='What gives answers away stays in published data; the rewards of such tasks '
    'are marked as untrusted.',
    advanced=True,
  )
  description: str = option(
    'own',
    choices=descriptions.KINDS,
    help="Problem texts: this project's own, or those of mle-bench, as published or "
    "without the competition's story, out of mlebench_repo.",
    advanced=True,
  )
  mlebench_repo: str = option(
    '',
    is_path=True,
    help="Checkout of mle-bench, for its problem texts and its leaderboards; '': none, "
    'and no medals.',
    advanced=True,
  )

  relations = (
    relation(
      'as_published',
      'data',
      holds=lambda kept, data: not kept or data != 'standin',
      say='{at}as_published={as_published} is for published data, and stand-ins give '
      'nothing away; give {at}data=mlebench or raw, or leave it out.',
    ),
    relation(
      'description',
      'mlebench_repo',
      holds=lambda kind, repo: kind == 'own' or bool(repo),
      say='{at}description={description} is read from a checkout of mle-bench; give '
      '{at}mlebench_repo=DIR, or {at}description=own.',
    ),
    relation(
      'data',
      'data_dir',
      holds=lambda data, where: (data == 'standin') is not bool(where),
      say='{at}data={data} and {at}data_dir={data_dir!r}: stand-ins have no '
      'folder, other data needs one; give {at}data=mlebench or raw and '
      '{at}data_dir=DIR.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class CollectConfig(Section):
  """Trajectories of the expert."""

  trajectories_per_task: int = option(32, help='Trajectories of a task.')
  max_steps: int = option(
    6, unit='steps', most=_MOST_STEPS, help='Longest trajectory.'
  )
  time_limit_s: float = option(
    1800.0,
    unit='s',
    above=0,
    help="Limit of a trajectory's executions.",
    advanced=True,
  )
  idea_pool: int = option(100, help='Ideas proposed for a task.', advanced=True)
  ideas_kept: int = option(
    10, help='Ideas kept of those, the most different.', advanced=True
  )
  varied_start: float = option(
    0.7,
    least=0,
    most=1,
    help='Share that starts from an edited script; 0: none.',
  )

  relations = (
    relation(
      'ideas_kept',
      'idea_pool',
      holds=lambda kept, pool: kept <= pool,
      say='{at}ideas_kept={ideas_kept} are more than '
      '{at}idea_pool={idea_pool}, from which they are chosen; lower the first.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class EpisodeConfig(Section):
  """Trajectories of recipe episodewise, from the starter on."""

  max_steps: int = option(
    15,
    unit='steps',
    most=_MOST_STEPS,
    help='Longest trajectory.',
    advanced=True,
  )
  time_limit_s: float = option(
    1800.0,
    unit='s',
    above=0,
    help="Limit of a trajectory's executions.",
    advanced=True,
  )


@dataclasses.dataclass(frozen=True)
class SftConfig(SftOptions):
  """Supervised fine-tuning on what experts did."""

  epochs: int = option(
    8, least=0, help='Passes over the data; 0: the model as it is.'
  )
  batch_size: int = option(8, unit='rows', help='Rows of a step.')
  checkpoint_every: int = option(
    100, unit='steps', help='Steps between checkpoints.', advanced=True
  )
  steps: str = option(
    'ran',
    choices=('ran', 'improved'),
    help="The experts' steps that ran, or only those of trajectories that "
    'were once better than their start.',
    advanced=True,
  )
  deduplicate: bool = option(
    False,
    help='Use equal prompts with equal responses once.',
    advanced=True,
  )
  conversations: str = option(
    '',
    is_path=True,
    help='ShareGPT file (.json, .jsonl) to learn from instead; see '
    "docs/ml_agent.md; '': none.",
    advanced=True,
  )

  relations = (
    relation(
      'conversations',
      'epochs',
      holds=lambda file, epochs: epochs or not file,
      say='{at}conversations={conversations!r} is not read with '
      "{at}epochs={epochs}; raise it, or set the file to ''.",
    ),
  )


@dataclasses.dataclass(frozen=True)
class RlConfig(LearnerOptions, SchedulerOptions):
  """Reinforcement learning: the learner's and the scheduler's options, and its own."""

  updates: int = option(64, help='Updates of the policy.')
  tasks: tuple[str, ...] = option(
    (), help='Held-in tasks that RL starts from; (): all.'
  )
  states: int = option(
    0, least=0, help="How many of the experts' states RL starts from; 0: all."
  )
  weighting: str = option(
    'duration',
    choices=('none', 'duration', 'inclusion'),
    help='Weights of samples: none, by duration (paper 003), or by the inverse '
    'probability of being in a batch.',
  )
  weight_mean: str = option(
    'executed',
    choices=('executed', 'batch'),
    help='Where weights have the mean 1: steps that ran, or all (paper 003).',
  )
  weight_cap: float = option(
    3.0,
    least=0,
    check=must(
      lambda cap: cap == 0 or cap >= 1,
      'is below the mean weight, 1; give 1 or more, or 0 for no cap.',
    ),
    help='Duration weights are cut at this many means; 0: no cap.',
  )
  critic_path: str = option(
    '',
    is_path=True,
    help="Hugging Face folder of the critic's trunk; '': the policy's.",
  )
  value_warmup_epochs: int = option(
    3,
    least=0,
    help='Passes of the critic over the collected steps before RL; 0: none.',
  )
  checkpoint_every: int = option(
    1, unit='updates', help='Updates between checkpoints.', advanced=True
  )
  keep_checkpoints: int = option(
    3, help='Checkpoints that are kept.', advanced=True
  )
  validate_every: int = option(
    0,
    unit='updates',
    least=0,
    help='Updates between validations, and one after the last; 0: none.',
    advanced=True,
  )
  validate_samples: int = option(
    1, help='Rollouts of each validation prompt.', advanced=True
  )
  keep_best: bool = option(
    False,
    help='Keep the checkpoint with the best validation reward, too; it is what is '
    'evaluated.',
    advanced=True,
  )
  shuffle_rewards: bool = option(
    False,
    help='Shuffle rewards among samples: the control of every claim of '
    'learning.',
    advanced=True,
  )

  relations = (
    relation(
      'batch_size',
      'minibatches',
      holds=lambda batch, parts: batch % parts == 0,
      say='{at}batch_size={batch_size} does not divide by '
      '{at}minibatches={minibatches}; change one of them.',
    ),
    relation(
      'estimator',
      'group_size',
      'groups',
      'window',
      holds=lambda name, group, groups, window: (
        name not in GROUPED or group >= 2 or groups == 'prompt' or window
      ),
      say='{at}estimator={estimator!r} compares samples of one prompt: '
      '{at}group_size={group_size} must be at least 2 where {at}groups={groups!r}'
      ' and {at}window={window}.',
    ),
    relation(
      'estimator',
      'best_of',
      'batch_size',
      'groups',
      'window',
      holds=lambda name, k, batch, groups, window: (
        name not in OF_THE_BEST
        or (groups == 'drawn' and not window)
        or k < batch
      ),
      say='{at}best_of={best_of} of {at}estimator={estimator!r} must be below '
      '{at}batch_size={batch_size}, of which {at}groups={groups!r} with '
      '{at}window={window} makes groups.',
    ),
    relation(
      'estimator',
      'best_of',
      'group_size',
      'groups',
      'window',
      holds=lambda name, k, group, groups, window: (
        name not in OF_THE_BEST or k < group or groups == 'prompt' or window
      ),
      say='{at}best_of={best_of} of {at}estimator={estimator!r} must be below '
      '{at}group_size={group_size}: the best of K is compared with that of K others; '
      "lower the first, raise the last, set {at}groups={groups!r} to 'prompt', or "
      '{at}window={window} to 64 or more.',
    ),
    relation(
      'states',
      'group_size',
      'batch_size',
      holds=lambda states, group, batch: not states or states * group >= batch,
      say='{at}states={states} with {at}group_size={group_size} samples each do '
      'not fill {at}batch_size={batch_size}; raise the first (0: all), or '
      'lower the last.',
    ),
    relation(
      'keep_best',
      'validate_every',
      holds=lambda keep, every: every or not keep,
      say='{at}keep_best={keep_best} needs the rewards of validations, and '
      '{at}validate_every={validate_every} makes none; raise it, or set the first '
      'to False.',
    ),
    relation(
      'baseline',
      'weighting',
      'importance_level',
      holds=lambda baseline, weights, ratios: (
        baseline == 'mean'
        or weights != 'none'
        or (baseline == 'optimal' and ratios != 'none')
      ),
      say='{at}baseline={baseline!r} is the mean itself where nothing is '
      'weighted ({at}weighting={weighting!r}, '
      "{at}importance_level={importance_level!r}); set it to 'mean', or "
      'weight.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class EvalConfig(Section):
  """Evaluation."""

  trajectories_per_task: int = option(
    16, help='Trajectories of a task; above k: see docs/summary.md.'
  )
  max_steps: int = option(
    2, unit='steps', most=_MOST_STEPS, help='Longest trajectory.'
  )
  time_limit_s: float = option(
    1800.0,
    unit='s',
    above=0,
    help="Limit of a trajectory's executions; no action begins after it.",
  )
  hours: float = option(
    0.0,
    unit='h',
    least=0,
    help="Limit of all executions of one policy's evaluation; 0: none. Once they are "
    'spent the run stops; with more hours it resumes.',
    advanced=True,
  )
  k: int = option(8, help='The k of avg@k and best@k.')
  policies: tuple[str, ...] = option(
    summary.POLICIES,
    choices=summary.POLICIES,
    help='Policies that are evaluated.',
  )

  free: ClassVar[tuple[str, ...]] = ('hours',)

  relations = (
    relation(
      'hours',
      'time_limit_s',
      holds=lambda hours, most_s: not hours or 3600 * hours >= most_s,
      say='{at}hours={hours} of a whole evaluation are less than '
      '{at}time_limit_s={time_limit_s} of a trajectory; raise the first or lower the '
      'second.',
    ),
    relation(
      'k',
      'trajectories_per_task',
      holds=lambda k, runs: k <= runs,
      say='{at}k={k} needs as many runs of a task, but '
      '{at}trajectories_per_task={trajectories_per_task}; lower k or raise the '
      'runs.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class SolutionConfig(Section):
  """Whole solutions (recipes solutions and tree_search)."""

  scale: str = option(
    'bounded',
    choices=SCALES,
    help='Reward of a valid score; see docs/rl_for_mle.md.',
  )
  failure: float = option(
    FAILURE,
    below=0,
    help='Reward of a program that reached nothing; a hundredth of it is the credit of '
    'a milestone.',
  )
  improve: float = option(
    _IMPROVE,
    least=0,
    most=1,
    help='Share of prompts with a previous solution; 0: none. The older form of '
    'operators: improve has this share, draft the rest.',
    advanced=True,
  )
  operators: dict[str, float] = option(
    {},
    help='Share of each operator in the prompts of RL, of the scripted programs and, '
    'after its drafts, of a search; {}: by improve. See docs/best_of.md.',
    example=operators.EXAMPLE,
    check=operators.complaint,
    advanced=True,
  )
  kept: int = option(
    256, help='Solutions of a task kept to improve upon.', advanced=True
  )
  keep_failed: bool = option(
    False, help='Keep failed solutions as well.', advanced=True
  )
  parents: str = option(
    'uniform',
    choices=PARENTS,
    help='Which kept solution is improved upon; ranked: by exp(-rank / 3) / sqrt(1 + '
    'times chosen), and the ten best stay.',
    advanced=True,
  )
  programs: int = option(
    2000, least=0, help='Scripted programs for SFT; 0: no SFT.'
  )
  samples: int = option(
    128,
    help='Solutions of a task at evaluation, as many from scratch as improved.',
    advanced=True,
  )

  relations = (
    relation(
      'improve',
      'operators',
      holds=lambda improve, shares: improve == _IMPROVE or not as_dict(shares),
      say='{at}improve={improve} is the older form of {at}operators, which is given, '
      f'too: leave it at {_IMPROVE}, or {{at}}operators at {{{{}}}}.',
    ),
  )


@dataclasses.dataclass(frozen=True)
class SearchConfig(Section):
  """Recipe tree_search: draft, debug, improve (AIDE)."""

  runs: int = option(8, help='Searches of a task.', advanced=True)
  steps: int = option(20, help='Programs of a search.', advanced=True)
  drafts: int = option(
    5, help='Programs written from scratch first.', advanced=True
  )
  debug_probability: float = option(
    0.5,
    least=0,
    most=1,
    help='Share of steps that debug where something can be; 0: none.',
    advanced=True,
  )
  seconds: float = option(
    0.0,
    unit='s',
    least=0,
    help="Of a search's executions together; when they have taken so long it ends. 0: "
    'steps alone decide.',
    advanced=True,
  )
  parents: str = option(
    'best',
    choices=('best', 'ranked'),
    help='Which valid solution is improved upon; ranked: by exp(-rank / 3) / sqrt(1 + '
    'times chosen).',
    advanced=True,
  )
  debug_depth: int = option(
    3, help='Failures in a row that are still debugged.', advanced=True
  )
