"""Which text models take part: scripted stand-ins or an endpoint."""

from __future__ import annotations

import pathlib


def make_expert(config, work: pathlib.Path):
  """The expert that `config.expert.kind` names."""
  if config.expert.kind == 'scripted':
    from jaxagent.stand_ins.expert import ScriptedExpert

    return ScriptedExpert()
  from jaxagent.llm.model_expert import ModelExpert

  return ModelExpert(_client(config.expert, work))


def make_editor(config, work: pathlib.Path):
  """The editor that `config.editor.kind` names."""
  if config.editor.kind == 'scripted':
    from jaxagent.stand_ins.editor import ScriptedEditor

    return ScriptedEditor()
  from jaxagent.llm.model_editor import ModelEditor

  return ModelEditor(_client(config.editor, work))


def _client(options, work: pathlib.Path):
  from jaxagent.llm.openai_client import OpenAIClient

  return OpenAIClient(
    base_url=options.base_url,
    model=options.model,
    cache_dir=work / 'llm_cache',
  )
