"""Ideas of the expert's model: asked for once, or the run says why not."""

# ruff: noqa: F811, F401 - a fixture of another file

from __future__ import annotations

import pathlib
import types as stubs

import pytest

from configs import common
from jaxagent.data.records import state_from_json
from jaxagent.envs.tasks import load_task
from jaxagent.loops import collect, text_models
from jaxagent.loops.errors import UserError
from tests.llm.test_openai_client import answer, endpoint
from tests.loops.test_kept import STATE

TASKS = pathlib.Path(__file__).parents[2] / 'tasks'


def _ideas(first: int, last: int):
  return answer(
    '[advice]\n' + '\n'.join(f'idea {i}' for i in range(first, last))
  )


def _host(work, endpoint):
  config = common.base()
  config.expert.kind, config.expert.model = 'openai', 'tiny'
  config.expert.base_url = endpoint.url
  config.collect.idea_pool = 12
  return stubs.SimpleNamespace(
    config=config,
    work=work,
    spec=lambda name: load_task(name, TASKS),
    expert=text_models.make_expert(config, work),
  )


def test_the_expert_is_asked_once_for_ideas(endpoint, tmp_path):
  endpoint.script = [_ideas(0, 8), _ideas(4, 14), _ideas(20, 40)]
  state = state_from_json(STATE)
  chosen = collect._ideas(_host(tmp_path, endpoint), state)
  assert len(chosen) == 10 and set(chosen) < {f'idea {i}' for i in range(14)}
  asked = [body['messages'][0]['content'] for _, _, body in endpoint.seen]
  assert len(asked) == 2
  assert load_task('wine', TASKS).research_problem in asked[0]
  assert collect._ideas(_host(tmp_path, endpoint), state) == chosen
  assert len(endpoint.seen) == 2  # a resumed run does not ask


def test_too_few_ideas_end_the_run_with_a_sentence(endpoint, tmp_path):
  endpoint.script = [_ideas(0, 5)]
  with pytest.raises(UserError, match='wine.*gave 5 ideas.*idea_pool=12'):
    collect._ideas(_host(tmp_path, endpoint), state_from_json(STATE))
  assert not (tmp_path / 'collect' / 'ideas').exists()
