"""An exported folder on the Hugging Face hub, through `huggingface_hub`."""

from __future__ import annotations

import pathlib
from typing import Any

TOKEN = 'HF_TOKEN'  # the variable that huggingface_hub reads


def check(repository: str) -> None:
  """Raises ValueError where a push could not begin: a wrong name, or no token.

  repository: OWNER/NAME. Asks nothing of the network.
  """
  import huggingface_hub
  from huggingface_hub import constants

  check_name('--push', repository)
  if constants.HF_HUB_OFFLINE:
    raise ValueError(
      f'--push={repository}: HF_HUB_OFFLINE is set; unset it to reach the hub.'
    )
  if not huggingface_hub.get_token():
    raise ValueError(
      f'--push={repository} needs a token of the hub that may write: set {TOKEN}, or '
      'run `hf auth login`; nothing was exported.'
    )


def check_name(option: str, repository: str) -> None:
  """Raises ValueError, naming the option, where a name is no OWNER/NAME of the hub."""
  from huggingface_hub.errors import HFValidationError
  from huggingface_hub.utils import validate_repo_id

  owner, _, name = repository.partition('/')
  try:
    validate_repo_id(repository)
  except HFValidationError as error:
    raise ValueError(f'{option}={repository}: {error}') from error
  if not (owner and name):
    raise ValueError(
      f'{option}={repository} must be OWNER/NAME, such as my-team/policy-7b.'
    )


def push(
  folder: pathlib.Path,
  repository: str,
  *,
  public: bool = False,
  api: Any = None,
) -> str:
  """Makes the repository, unless it is there, and uploads a folder; its address.

  public: of a repository that is made; else it is private. Without it, nothing is
    uploaded into a public repository. api: a `huggingface_hub.HfApi`; None for that of
    the environment.

  Raises ValueError, one line, for a public repository and for whatever the hub or the
  way to it refuses; the folder stays.
  """
  if api is None:
    import huggingface_hub

    api = huggingface_hub.HfApi()
  made = None
  try:
    if public or not _is_public(api, repository):
      api.create_repo(repository, private=not public, exist_ok=True)
      made = api.upload_folder(
        repo_id=repository,
        folder_path=folder,
        commit_message='Exported by jaxagent',
      )
  except Exception as error:  # noqa: BLE001 - its HTTP library is not ours to name
    reason = ' '.join(f'{type(error).__name__}: {error}'.split())[:300]
    private = '' if public else ' --private'
    raise ValueError(
      f'--push={repository} failed ({reason}); {folder} holds the export, and `hf '
      f'upload {repository} {folder}{private}` tries again.'
    ) from error
  if made is None:
    raise ValueError(
      f'--push={repository}: this repository exists and is public; add --public, or '
      f'give another name. Nothing was uploaded; {folder} holds the export.'
    )
  return str(made)


def _is_public(api: Any, repository: str) -> bool:
  """Whether a repository is there that is not known to be private."""
  from huggingface_hub.errors import RepositoryNotFoundError

  try:
    return not api.repo_info(repository).private
  except RepositoryNotFoundError:
    return False
