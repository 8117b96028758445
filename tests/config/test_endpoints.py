"""Options of the models behind endpoints, from files and from the command line."""

# ruff: noqa: F811, F401 - a fixture of another file

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from configs import common
from jaxagent.config import endpoints, rules, settings
from jaxagent.errors import UserError
from jaxagent.recipes.ml_agent import collect
from jaxagent.runtime import text_models
from jaxagent.types import Outcome
from tests.llm.test_openai_client import endpoint
from tests.llm.test_thinking_endpoint import said
from tests.recipes.ml_agent.test_collect import _Collecting
from tests.recipes.ml_agent.test_evaluate import _starts
from tests.runs import environment

ROOT = pathlib.Path(__file__).parents[2]
EXTRA = {'max_tokens': None, 'max_completion_tokens': 64}


@pytest.mark.parametrize(
  'given',
  [
    EXTRA,
    "{'max_tokens': None, 'max_completion_tokens': 64}",
    '{"max_tokens": null, "max_completion_tokens": 64}',
  ],
)
def test_a_dictionary_or_its_text_is_one_config(given):
  config = common.base()
  config.expert.kind, config.expert.model = 'openai', 'm'
  config.expert.extra = given
  assert rules.complaint(config, ('config', 'run')) == ''
  assert settings.config_record(config)['expert']['extra'] == EXTRA
  assert endpoints.extra_of(config, 'reader') == EXTRA  # who speaks for it
  config.editor.extra = {'top_p': 0.9}
  assert endpoints.extra_of(config, 'reader') == EXTRA | {'top_p': 0.9}
  assert endpoints.extra_of(config, 'expert') == EXTRA


@pytest.mark.parametrize(
  'role, given, says',
  [
    ('expert', 'top_p=0.9', 'expert.extra=.*neither JSON nor a Python literal'),
    ('expert', '[1]', 'expert.extra=.*no dictionary'),
    (
      'expert',
      {'stream': True},
      "expert.extra=.*'stream' is set by the client",
    ),
    ('embeddings', {'a': 1}, r'for an endpoint.* \(tfidf\)'),
    ('reader', {'a': 1}, r'for an endpoint.* \(scripted\)'),
  ],
)
def test_an_extra_that_is_no_dictionary_or_has_no_endpoint_is_refused(
  role, given, says
):
  config = common.base()
  if role == 'expert':
    config.expert.kind, config.expert.model = 'openai', 'm'
  config[role].extra = given
  with pytest.raises(UserError, match=says):
    settings.validate(config)


@pytest.mark.parametrize(
  'name, value', [('max_tokens', 99), ('temperature', 0.1)]
)
def test_a_measured_model_has_the_policys_limits(name, value):
  config = common.base()
  config.recipe, config.expert[name] = 'agents', value
  with pytest.raises(UserError, match=f'expert.{name}=.*config.rollout.'):
    settings.validate(config)


@pytest.mark.parametrize(
  'text, says',
  [
    ('{"seed": null}', None),
    ("{'seed': None}", None),
    (
      '.seed=1',
      "give config.expert.extra as a whole, --config.expert.extra=\"{'seed'",
    ),
    ('{"seed": nul', 'config.expert.extra=\'{"seed": nul\': neither JSON'),
  ],
)
def test_from_the_command_line(tmp_path, text, says):
  given = text if text.startswith('.') else f'={text}'
  done = subprocess.run(
    [
      sys.executable, '-m', 'jaxagent.main', '--config=configs/stepwise_ppo.py',
      '--config.expert.kind=openai', '--config.expert.model=m', '--dry_run',
      f'--config.expert.extra{given}', f'--work_dir={tmp_path / "work"}',
    ],
    cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120,
  )  # fmt: skip
  assert done.returncode == (2 if says else 0), done.stderr[-2000:]
  assert says is None or says in done.stderr


def test_each_role_asks_with_its_own_limits(endpoint, tmp_path):
  config = common.base()
  for number, role in enumerate(('expert', 'editor', 'reader'), 1):
    config[role].update(
      kind='openai', model='m', base_url=endpoint.url, max_tokens=number,
      temperature=number / 10, extra={'top_k': number},
    )  # fmt: skip
  endpoint.script = [said('```python\nx = 2\n```')]
  text_models.make_editor(config, tmp_path).edit('x = 1\n', 'set x to 2')
  text_models.make_reader(config, tmp_path).describe('x = 1', 'all')
  asked = [
    (body['max_tokens'], body['temperature'], body['top_k'])
    for _, _, body in endpoint.seen
  ]
  assert asked == [(2, 0.2, 2), (3, 0.3, 3)]
  expert = text_models.make_expert(config, tmp_path)
  assert (expert.max_tokens, expert.temperature) == (1, 0.1)
  assert expert.client._room.limit.key == 'config.expert.max_tokens'


def _invalid(share: float, tmp_path):
  """A collection whose model writes a share of its steps in no format."""
  made = _Collecting(tmp_path, lambda job: False)
  whole = made.env.step

  def step(state, text, *, job_id, **how):
    result = whole(state, text, job_id=job_id, **how)
    if int(job_id.split('-')[2].split('#')[0]) >= share * 20:
      return result
    return result.__class__(
      Outcome.INVALID_FORMAT, '', {}, False, False, state, None, state.score,
      'Reflection is missing.',
    )  # fmt: skip

  made.env.step = step
  collect.run(made, _starts())  # a stand-in's is nobody's news
  made.expert.is_stand_in, made.expert.name = False, 'model_expert(m)'
  return made


def test_an_expert_that_is_never_understood_ends_the_run(tmp_path):
  made = _invalid(1.0, tmp_path)
  with pytest.raises(
    UserError,
    match='40 invalid_format of 40 steps of model_expert.*Reflection is missing'
    '.*nothing to learn from.*expert.max_tokens.*trajectories.jsonl',
  ):
    collect.run(made, _starts())


def test_an_expert_with_some_invalid_steps_is_reported(tmp_path, capsys):
  made = _invalid(0.25, tmp_path)
  capsys.readouterr()
  assert len(collect.run(made, _starts())) == 20
  assert '10 invalid_format of 40 steps' in capsys.readouterr().out
