"""What a start reads of `task.yaml` several times."""

import pytest

from jaxagent.envs.specs import task_yaml


def test_a_file_that_changed_is_read_anew(tmp_path):
  path = tmp_path / 'task.yaml'
  for text, found in (('a: [1]\n', {'a': [1]}), ('a: [2]\n', {'a': [2]})):
    path.write_text(text)
    assert task_yaml.mapping(path) == found


def test_what_a_caller_changes_is_its_own(tmp_path):
  path = tmp_path / 'task.yaml'
  path.write_text('a: &x {b: [1]}\nc: *x\n')
  task_yaml.mapping(path)['a']['b'].append(2)
  assert task_yaml.mapping(path) == {'a': {'b': [1]}, 'c': {'b': [1]}}


def test_a_text_is_parsed_once(tmp_path, monkeypatch):
  path = tmp_path / 'task.yaml'
  path.write_text('only: here\n')
  first = task_yaml.mapping(path)
  monkeypatch.delattr(task_yaml.yaml, 'safe_load')
  assert task_yaml.mapping(path) == first


def test_a_file_that_cannot_be_read_is_named_each_time(tmp_path):
  path = tmp_path / 'task.yaml'
  path.write_text('a: [')
  for _ in range(2):
    with pytest.raises(ValueError, match=r'task\.yaml: not readable as YAML'):
      task_yaml.mapping(path)
