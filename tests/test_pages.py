"""Commands and files that the first pages name exist."""

import pytest

from tests.commands import ROOT, commands, files, problems

PAGES = ('AGENTS.md', 'README.md')


@pytest.mark.parametrize('page', PAGES)
def test_every_command_of_a_page_names_programs_files_and_flags_that_exist(
  page,
):
  named = [*commands((ROOT / page).read_text())]
  assert len(named) > 15, 'the commands of the page are not found'
  assert {c: p for c in named if (p := problems(c))} == {}


@pytest.mark.parametrize('page', PAGES)
def test_every_file_that_a_page_names_exists(page):
  named = [*files((ROOT / page).read_text())]
  assert len(named) > 15
  assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
  'command, problem',
  [
    ('jaxagent trian x.py', 'no verb trian'),
    ('jaxagent train stepwise_pp', 'stepwise_ppo'),
    ('jaxagent train stepwise_ppo --rl.update 8', 'no --config.rl.update'),
    ('jaxagent why DIR --updates 3', 'jaxagent.why has no --updates'),
    ('jaxagent tasks show', 'jaxagent.tasks has no show'),
    ('python -m jaxagent.whyy DIR', 'no module jaxagent.whyy'),
    ('python -m pytest tests/test_none.py', 'no file tests/test_none.py'),
    ('bash launch_scripts/none.sh', 'no file launch_scripts/none.sh'),
    ('bash launch_scripts/slurm.sh --node=2', 'has no --node'),
    ('python -m jaxagent.main --config=configs/none.py', 'no file'),
    ('tensorbord --logdir x', 'no program tensorbord'),
  ],
)
def test_a_command_that_names_what_there_is_not_is_found(command, problem):
  assert problem in ' '.join(problems(command))
