"""Which text models take part: scripted stand-ins or an endpoint."""

from __future__ import annotations

import pathlib

from jaxagent.loops.errors import UserError


def make_expert(config, work: pathlib.Path):
  """The expert that `config.expert.kind` names."""
  if config.expert.kind == 'scripted':
    from jaxagent.llm.scripted_expert import ScriptedExpert

    return ScriptedExpert()
  from jaxagent.llm.model_expert import ModelExpert

  return ModelExpert(_client(config.expert, 'expert', work))


def make_editor(config, work: pathlib.Path):
  """The editor that `config.editor.kind` names."""
  if config.editor.kind == 'scripted':
    from jaxagent.llm.scripted_editor import ScriptedEditor

    return ScriptedEditor()
  from jaxagent.llm.model_editor import ModelEditor

  return ModelEditor(_client(config.editor, 'editor', work))


def _client(options, role: str, work: pathlib.Path):
  from jaxagent.llm.openai_client import OpenAIClient

  if not options.model:
    raise UserError(
      f'config.{role}.model is empty: name the model that the endpoint '
      f'{options.base_url} serves, or set config.{role}.kind=scripted.'
    )
  return OpenAIClient(
    base_url=options.base_url,
    model=options.model,
    cache_dir=work / 'llm_cache',
  )
