"""The model card of an export, and where it is pushed to."""

from __future__ import annotations

import json
import pathlib
import shutil
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import RepositoryNotFoundError
from hypothesis import given
from hypothesis import strategies as some

from jaxagent.models import card, card_text, push
from tests.models.conftest import make_config

HASH = 'ab' * 32
SECTION = {
  measure: {'mean': 0.5, 'low': 0.25, 'high': 0.75, 'n': 7}
  for measure, _ in card.MEASURES
}
EMPTY = {m: {'mean': None, 'low': None, 'high': None, 'n': 0} for m in SECTION}
OPTIONS = {
  'seed': 5,
  'rollout': {'temperature': 0.7, 'prompt_style': 'compact'},
  'tasks': {
    'heldin': ['digits', 'name:wi*'],
    'heldout': ['iris'],
    'data_dir': 'd',
  },
  'model': {'path': '/home/someone/qwen'},
  'expert': {'base_url': 'http://10.0.0.1:8000/v1', 'model': 'org/name'},
  'rollout_note': '~/secret',
}
SUMMARY = {
  'rl': {'heldin': SECTION, 'heldout': EMPTY},
  'isolation_tier': 'T3',
  'stand_ins': ['scripted_expert'],
  'untrusted': {'wine': 'its labels | are public'},
  'evaluation': {'k': 8, 'trajectories_per_task': 16},
  'versions': {'python': '3.11.7', 'jax': '0.10.2'},
  'config_sha': '0123456789abcdef',
}


@pytest.fixture
def run(tmp_path) -> pathlib.Path:
  """The files of a run of three updates that a card reads."""
  work = tmp_path / 'work'
  traces = work / 'rl' / 'traces'
  traces.mkdir(parents=True)
  (work / 'eval').mkdir()
  (work / 'config.json').write_text(json.dumps(OPTIONS))
  (work / 'summary.json').write_text(json.dumps(SUMMARY))
  (work / 'eval' / 'rl.updates').write_text('3')
  records = [
    {'task': 'wine', 'split': 'heldin', 'steps': [{'tier': 'T2'}]},
    {'task': 'digits', 'split': 'heldin', 'steps': [{'tier': None}]},
  ]
  (work / 'eval' / 'rl.json').write_text(json.dumps(records))
  for update in range(3):
    lines = [{'hash': f'{update}'}, {'hash': HASH if update == 2 else 'other'}]
    text = '\n'.join(map(json.dumps, lines))
    (traces / f'update_{update:06d}.jsonl').write_text(text)
  return work


def _card(
  work: pathlib.Path, checkpoint='rl/checkpoints/step_00000003', **options
):
  return card.of_run(work, make_config(), work / checkpoint, **options)


def test_a_card_has_tasks_tiers_seed_intervals_versions_and_the_audit(run):
  text = _card(run)
  for part in (
    '- held-in: digits, wine\n',
    '- held-out: iris (as configured; not evaluated)',
    '| after RL | held-in | 0.500 [0.250, 0.750] (7) |',
    '| after RL | held-out | - |',
    'tier of the executions: T3, T2 (',
    'Training seed: 5;',
    'Scripts stood in for language models: scripted_expert.',
    'Rewards of wine may have been cheated: its labels \\| are public.',
    'k is 8, with 16 trajectories a task',
    'python 3.11.7, jax 0.10.2.',
    'jaxagent audit WORK_DIR',
    f'`rl/traces/update_000002.jsonl`, has the hash `{HASH}`',
    '`0123456789abcdef`',
    'checkpoint `rl/checkpoints/step_00000003`',
  ):
    assert part in text, part


def test_a_card_says_what_an_interval_of_too_few_trajectories_needs(run):
  assert 'needs' not in _card(run)
  few = {name: one | {'needs': 32} for name, one in SECTION.items()}
  few['best_at_k'] |= {'needs': None}
  (run / 'summary.json').write_text(
    json.dumps(SUMMARY | {'rl': {'heldin': few, 'heldout': EMPTY}})
  )
  text = _card(run)
  assert '| 0.500 [0.250, 0.750] (7; needs 32) |' in text
  assert '| 0.500 [0.250, 0.750] (7; needs more than 128) |' in text
  assert 'needs N: too few trajectories of a task' in text


def test_the_head_of_a_card_is_yaml_that_the_hub_reads(run):
  from huggingface_hub import ModelCard

  read = ModelCard(_card(run)).data
  assert read.library_name == 'transformers'
  assert read.tags == ['jaxagent', 'reinforcement-learning']
  lora = make_config().replace(lora_rank=4)
  text = card.of_run(
    run, lora, run / 'rl' / 'checkpoints' / 'step_1', adapters=True
  )
  assert ModelCard(text).data.library_name == 'peft'
  assert '# Adapters of rank 4 for a qwen2 model' in text
  assert ModelCard(text).data.base_model is None
  text = _card(run, adapters=True, base='Qwen/Qwen2.5-3B')
  assert ModelCard(text).data.base_model == 'Qwen/Qwen2.5-3B'


def test_no_place_of_the_machine_is_in_a_card(run):
  text = _card(run)
  for place in ('someone', '10.0.0.1', 'secret', '"d"', str(run)):
    assert place not in text
  assert '"model": "org/name"' in text


PLACES = (
  '10.1.2.3:6379',
  'registry.corp.internal:5000/team/image',
  'node7:6379',
  '[fe80::12ab]:8000',
  'http://10.1.1.1/v1',
  'see /home/alice/x',
  '(/opt/alice',
  '-I/home/alice/include',
  '../../alice/secret',
  'runs/../../alice',
  '~/alice',
  '~alice',
  r'C:\Users\alice',
  'alice@login.corp:runs',
)
NO_PLACES = (
  'org/name',
  '0.10.2',
  '</answer>',
  'paper:123/train',
  'suite:mlebench/low',
  'name:wi*',
  'python:3.11',
  '1 / 2',
  'and so on ...',
)


@pytest.mark.parametrize('place', PLACES)
def test_a_place_is_left_out_wherever_a_run_has_written_it(run, place):
  options = OPTIONS | {'note': place, 'rollout': {'prompt_style': place}}
  options['tasks'] = {'heldout': [place]}
  (run / 'config.json').write_text(json.dumps(options))
  texts = {
    'stand_ins': [place],
    'untrusted': {place: f'it read {place}'},
    'versions': {'jax': place},
    'config_sha': place,
  }
  (run / 'summary.json').write_text(json.dumps(SUMMARY | texts))
  text = _card(run)
  for part in ('alice', '10.1', '6379', '5000', 'fe80', 'corp'):
    assert part not in text
  assert text.count(card_text.LEFT_OUT) >= 8


@pytest.mark.parametrize('value', NO_PLACES)
def test_what_is_no_place_stays(value):
  assert card_text.public({'a': [value]}) == {'a': [value]}
  assert card_text.LEFT_OUT not in card_text.cell(value)


def test_options_that_hold_places_are_left_out_and_a_recipe_is_its_file():
  given = {
    'sandbox': {'ray_address': 'head', 'docker_image': 'corp/image'},
    'recipe': '../../alice/secret/forest.py:Forest',
  }
  assert card_text.public(given) == {
    'sandbox': dict.fromkeys(given['sandbox'], card_text.LEFT_OUT),
    'recipe': 'forest.py:Forest',
  }
  assert card_text.public({'recipe': 'mine.forest:Forest'}) == {
    'recipe': 'mine.forest:Forest'
  }


@pytest.mark.parametrize(
  'text',
  [
    '__b__',
    '_b_',
    '~~b~~',
    '*b*',
    '&lt;b&gt;',
    '<b>b</b>',
    '[b](c)',
    '![b](c)',
    '`b`',
    '```\nb',
    'b\n\n# c',
    'a|b',
  ],
)
def test_a_text_of_the_run_is_read_as_it_is_written(text):
  """By a parser of Markdown, with strikethrough as the hub has it."""
  markdown_it = pytest.importorskip('markdown_it')
  parser = markdown_it.MarkdownIt().enable('strikethrough')
  read = parser.parse(f'- value: {card_text.cell(text)} end')
  (inline,) = (token for token in read if token.type == 'inline')
  kinds = {child.type for child in inline.children}
  assert kinds <= {'text', 'text_special'}
  plain = ''.join(child.content for child in inline.children)
  assert plain == f'value: {" ".join(text.split())} end'
  read = parser.parse(f'style {card_text.code(text)}.')
  (inline,) = (token for token in read if token.type == 'inline')
  assert [c.type for c in inline.children] == ['text', 'code_inline', 'text']


def test_an_address_or_a_name_in_a_text_is_no_link():
  said = card_text.cell('ask @someone at www.example.com')
  assert '@' not in said and 'www.' not in said


def test_weights_that_were_not_evaluated_are_named_as_such(run):
  assert 'not of these weights' not in _card(run)
  text = _card(run, 'rl/checkpoints/step_00000001')
  assert 'they have seen 1 updates, the policy that was evaluated 3.' in text
  assert '`rl/traces/update_000000.jsonl`, has the hash `other`' in text


def test_weights_of_sft_are_not_shown_as_trained_by_rl(run):
  from huggingface_hub import ModelCard

  both = SUMMARY | {'sft': {'heldin': SECTION}}
  (run / 'summary.json').write_text(json.dumps(both))
  records = [{'task': 'of_sft', 'split': 'heldin', 'steps': [{'tier': 'T1'}]}]
  (run / 'eval' / 'sft.json').write_text(json.dumps(records))
  text = _card(run, 'sft/checkpoints/step_000040')
  assert 'chained by SHA-256' not in text and 'not of these weights' not in text
  assert 'fine-tuned on demonstrations, not trained by RL' in text
  assert 'reinforcement' not in text and 'after RL' not in text
  assert ModelCard(text).data.tags == ['jaxagent']
  assert '| after SFT | held-in | 0.500' in text
  assert '- held-in: of_sft\n' in text and 'T2' not in text
  text = _card(run)
  assert 'trained by reinforcement learning' in text
  assert '| after RL | held-in' in text and '| after SFT | held-in' in text


def test_a_run_that_evaluated_rl_alone_has_no_results_of_its_sft(run):
  text = _card(run, 'sft/checkpoints/step_000040')
  assert 'with results of these weights: they were not evaluated' in text


def test_a_split_without_a_named_task_is_shown_as_what_it_means(run):
  shutil.rmtree(run / 'eval')
  options = OPTIONS | {'tasks': {'heldin': [], 'heldout': []}}
  (run / 'config.json').write_text(json.dumps(options))
  text = _card(run)
  assert '- held-in: every bundled task of that split (as configured' in text
  assert '- held-out: every bundled task of that split, or none where' in text


def test_a_card_says_what_the_run_lacks(run):
  shutil.rmtree(run)
  run.mkdir()
  text = _card(run)
  assert 'has no `summary.json`' in text and 'has no `config.json`' in text
  assert 'tier of the executions: unknown' in text
  assert '- held-in: unknown (as configured; not evaluated)' in text


def test_a_damaged_file_of_the_run_is_as_good_as_none(run):
  for file in (
    run / 'summary.json',
    run / 'config.json',
    run / 'eval' / 'rl.json',
  ):
    file.write_text('{"a": ')
  for file in (run / 'rl' / 'traces').iterdir():
    file.write_bytes(b'\xff\n')
  text = _card(run)
  assert 'has no `summary.json`' in text and 'SHA-256' not in text


_JSON = some.recursive(
  some.none() | some.booleans() | some.floats() | some.text(),
  lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
  max_leaves=8,
)


@given(_JSON, _JSON)
def test_no_content_of_a_run_raises_out_of_a_card(
  tmp_path_factory, first, second
):
  work = tmp_path_factory.mktemp('run')
  (work / 'eval').mkdir()
  wrapped = {k: first for k in SUMMARY} | {'rl': {'heldin': second}}
  (work / 'summary.json').write_text(json.dumps(wrapped))
  options = {'tasks': first, 'seed': second, 'rollout': first}
  (work / 'config.json').write_text(json.dumps(options))
  (work / 'eval' / 'rl.json').write_text(json.dumps([first, {'steps': second}]))
  lines = _card(work).splitlines()
  assert lines.count('```') == 2  # no text of the run opens or closes a block


def test_a_card_of_weights_without_a_run_says_that_none_trained_them():
  text = card.of_import(make_config())
  assert 'not trained by it' in text and 'reinforcement' not in text


class _Hub:
  """What `push` uses of huggingface_hub.HfApi; keeps the calls."""

  def __init__(
    self, error: Exception | None = None, private: bool | None = None
  ):
    """private: of the repository that is there; None where there is none."""
    self.calls: list[tuple] = []
    self._error, self._private = error, private

  def repo_info(self, name):
    if self._private is None:
      reply = SimpleNamespace(headers={}, request=None, status_code=404)
      raise RepositoryNotFoundError(f'no {name}', response=reply)
    return SimpleNamespace(private=self._private)

  def create_repo(self, name, *, private, exist_ok):
    if self._error:
      raise self._error
    self.calls.append((name, private, exist_ok))

  def upload_folder(self, *, repo_id, folder_path, commit_message):
    self.calls.append((repo_id, folder_path))
    return f'https://hub/{repo_id}'


@pytest.fixture
def token(monkeypatch):
  monkeypatch.setattr('huggingface_hub.get_token', lambda: 'hf_x')
  monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', False)


def test_a_push_makes_a_private_repository_unless_it_is_to_be_public(tmp_path):
  for public in (False, True):
    hub = _Hub()
    made = push.push(tmp_path, 'me/policy', public=public, api=hub)
    assert made == 'https://hub/me/policy'
    assert hub.calls == [
      ('me/policy', not public, True),
      ('me/policy', tmp_path),
    ]


def test_a_push_into_a_public_repository_has_to_be_asked_for(tmp_path):
  hub = _Hub(private=False)
  with pytest.raises(
    ValueError, match='me/p: this repository exists and is pu'
  ):
    push.push(tmp_path, 'me/p', api=hub)
  assert hub.calls == []
  push.push(tmp_path, 'me/p', public=True, api=hub)
  assert hub.calls[-1] == ('me/p', tmp_path)
  hub = _Hub(private=True)
  push.push(tmp_path, 'me/p', api=hub)
  assert hub.calls[-1] == ('me/p', tmp_path)


def test_what_the_hub_refuses_is_one_line_that_says_how_to_try_again(tmp_path):
  hub = _Hub(OSError('403\nforbidden'))
  with pytest.raises(
    ValueError, match='OSError: 403 forbidden.*hf upload me/p'
  ) as e:
    push.push(tmp_path, 'me/p', api=hub)
  assert '\n' not in str(e.value) and str(e.value).count(' --private`') == 1


def test_a_push_without_a_token_is_refused_by_its_name(monkeypatch, token):
  push.check('me/policy')
  monkeypatch.setattr('huggingface_hub.get_token', lambda: None)
  with pytest.raises(ValueError, match='set HF_TOKEN, or run `hf auth login`'):
    push.check('me/policy')


@pytest.mark.parametrize(
  'name', ['policy', 'a/b/c', 'me/', '/x', 'me/a--b', '']
)
def test_a_push_to_no_repository_name_is_refused(token, name):
  with pytest.raises(ValueError, match='--push='):
    push.check(name)


def test_a_push_while_offline_is_refused(monkeypatch, token):
  monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', True)
  with pytest.raises(ValueError, match='HF_HUB_OFFLINE is set'):
    push.check('me/policy')
