"""`python -m jaxagent.models import | export | score`.

import --model HF_DIR --out DIR            checks, converts, saves (orbax)
export --model DIR --out HF_DIR            back to a sharded HF folder; DIR
       is what `import` wrote, or the work directory of a run (its newest RL
       policy, else its SFT policy, or that of --stage; best: the RL policy with
       the best validation, which rl.keep_best keeps). Adapters are merged; with
       --adapter a PEFT folder is written, and in its folder base the model that
       they belong to, where that is not the folder of model.path. README.md in it
       is the model card. --push OWNER/NAME uploads the folder to the Hugging Face
       hub, into a private repository unless --public. With --adapter it needs
       --base OWNER/NAME, the repository that PEFT loads the base from: the model of
       model.path, or an export of --stage sft where that trained all weights; the
       folder base is not written then
score  --model HF_DIR --tokens F.npy --out G.npy
       log-prob of each token given its prefix, [B, T] -> [B, T-1]
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxagent.checkpoint import CheckpointError, CheckpointManager, Restored
from jaxagent.devices import sharding
from jaxagent.files import disk, model_files, readings
from jaxagent.models import card, hf, identity, lora, push
from jaxagent.models.config import DTYPES, ModelConfig
from jaxagent.models.decoder import abstract_decoder
from jaxagent.models.logprobs import token_logprobs

STAGES = ('rl', 'sft')  # of a run, the furthest first
BEST = 'best'


def main(argv: list[str] | None = None) -> int:
  """Returns the exit status; errors are one line on stderr."""
  args = _parser().parse_args(argv)
  try:
    args.run(args)
  except (ValueError, OSError, CheckpointError) as error:
    print(f'error: {error}', file=sys.stderr)
    return 2
  return 0


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog='python -m jaxagent.models',
    description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  commands = parser.add_subparsers(required=True, metavar='COMMAND')
  for name, run in (
    ('import', _import),
    ('export', _export),
    ('score', _score),
  ):
    command = commands.add_parser(name)
    command.set_defaults(run=run)
    command.add_argument('--model', required=True, type=disk.user_path)
    command.add_argument('--out', required=True, type=disk.user_path)
    command.add_argument('--dtype', choices=DTYPES, default=None)
    if name == 'import':
      command.add_argument('--scan_layers', action='store_true')
    if name == 'export':
      command.add_argument('--max_shard_mb', type=int, default=4096)
      command.add_argument('--stage', choices=(*STAGES, BEST), default=None)
      command.add_argument('--adapter', action='store_true')
      command.add_argument('--base', metavar='OWNER/NAME')
      command.add_argument('--push', metavar='OWNER/NAME')
      command.add_argument('--public', action='store_true')
    if name == 'score':
      command.add_argument('--tokens', required=True, type=disk.user_path)
      command.add_argument('--temperature', type=float, default=1.0)
      command.add_argument('--batch', type=int, default=8)
  return parser


def _import(args: argparse.Namespace) -> None:
  import orbax.checkpoint as ocp

  _must_be_new(args.out)
  start = time.monotonic()
  readings.check_readers(
    args.model, model_files.read_json(args.model / 'config.json')
  )
  config, _, params = hf.load_hf(
    args.model,
    param_dtype=args.dtype or 'float32',
    scan_layers=args.scan_layers,
  )
  with ocp.StandardCheckpointer() as saver:
    saver.save(args.out.resolve() / 'params', nnx.to_pure_dict(params))
  readings.copy(args.model, args.out)
  hf.write_config(args.out, _all_ends(args.model, config))
  print(
    f'{config.model_type}: {config.num_params():,} weights from {args.model} '
    f'to {args.out} in {time.monotonic() - start:.1f} s'
  )


def _export(args: argparse.Namespace) -> None:
  _check_export(args)
  trained = (args.model / 'model' / hf.RUN_FILE).is_file()
  if trained:
    config, params, origin = _trained(args.model, args.stage)
    tokenizer, temperature = args.model / 'tokenizer', _temperature(args.model)
    texts = readings.texts_of_run(args.model)
  else:
    config, params = _imported(args.model)
    tokenizer, origin, temperature = args.model, args.model, 1.0
    texts = iter(())
  if args.adapter and not config.lora_rank:
    raise ValueError(
      f'{origin} has no adapters: all of its weights were trained; leave out '
      '--adapter.'
    )
  readings.check_readers(tokenizer, config.to_hf(), texts)
  save = functools.partial(
    hf.save_hf,
    dtype=args.dtype,
    max_shard_bytes=args.max_shard_mb << 20,
    tokenizer=tokenizer,
    temperature=temperature,
  )
  if args.adapter:
    _export_adapter(args, config, params, save)
    what = f'adapters of rank {config.lora_rank}'
  else:
    save(args.out, config, params)
    what = f'{config.num_params():,} weights'
  if trained:
    text = card.of_run(
      args.model,
      config,
      origin,
      adapters=args.adapter,
      base=args.base or '',
    )
  else:
    text = card.of_import(config)
  card.write(args.out, text)
  print(f'{what} from {origin} to {args.out}')
  if args.push is not None:
    print(push.push(args.out, args.push, public=args.public))


def _check_export(args: argparse.Namespace) -> None:
  """Raises ValueError for options of an export that do not go together."""
  if args.public and args.push is None:
    raise ValueError('--public is of --push OWNER/NAME; give both or neither.')
  if args.base is not None:
    if not args.adapter:
      raise ValueError(
        f'--base={args.base} is of --adapter: merged weights have no base; leave it '
        'out, or give --adapter.'
      )
    push.check_name('--base', args.base)
  if args.push is not None:
    push.check(args.push)
    if args.adapter and args.base is None:
      raise ValueError(
        f'--push={args.push} with --adapter needs --base OWNER/NAME: the repository '
        'that PEFT loads the base from, since it cannot load a folder of this machine '
        'elsewhere.'
      )
  if args.adapter and args.dtype:
    raise ValueError(
      f'--dtype={args.dtype} is of merged weights: with --adapter, adapters are '
      'float32 and their base is what they were trained on; leave out one of the two.'
    )


def _export_adapter(
  args: argparse.Namespace,
  config: ModelConfig,
  params: nnx.State,
  save: Callable[..., Any],
) -> None:
  """Writes a PEFT folder, and the base in it where nothing else holds it."""
  _must_be_new(args.out)
  base = lora.split_lora(params)[1]
  noted, made = hf.read_adapters(args.model / 'model'), _full_sft(args.model)
  named = '' if made is not None and made.steps() else noted['base']
  named = args.base or named
  if not named:
    named = str(args.out.absolute() / 'base')
    save(pathlib.Path(named), config.replace(lora_rank=0), base)
  flat = {sharding.path_of(p): v for p, v in _leaves(base)}
  lora.save_peft(args.out, config, params, named, identity.digest(config, flat))


def _temperature(work: pathlib.Path) -> float:
  """Returns the temperature of a run's policy; 1 if none is recorded."""
  try:
    return float(
      model_files.read_json(work / 'config.json')['rollout']['temperature']
    )
  except (OSError, KeyError, TypeError):
    return 1.0


def _all_ends(folder: pathlib.Path, config: ModelConfig) -> ModelConfig:
  """Adds the end tokens that only `generation_config.json` names."""
  try:
    more = model_files.read_json(folder / 'generation_config.json').get(
      'eos_token_id'
    )
  except OSError:
    return config
  ends = tuple(dict.fromkeys((*_ids(config.eos_token_id), *_ids(more))))
  return config.replace(eos_token_id=ends) if len(ends) > 1 else config


def _ids(value: int | list[int] | tuple[int, ...] | None) -> tuple[int, ...]:
  if value is None:
    return ()
  return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _imported(folder: pathlib.Path):
  """(config, weights) of what `import` wrote."""
  import orbax.checkpoint as ocp

  config = hf.read_config(folder)
  _, abstract = abstract_decoder(config)
  with ocp.StandardCheckpointer() as saver:
    pure = saver.restore(
      folder.resolve() / 'params', nnx.to_pure_dict(abstract)
    )
  nnx.replace_by_pure_dict(abstract, pure)
  return config, abstract


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
  """(path, leaf) of each."""
  return jax.tree_util.tree_flatten_with_path(tree)[0]


def _trained(work: pathlib.Path, stage: str | None):
  """(config, weights, checkpoint) of a run's newest policy, or its best.

  Adapters have the base that they were trained on beside them.
  """
  config = hf.read_config(work / 'model')
  stages = hf.read_adapters(work / 'model').get('stages', ())
  for name in (stage,) if stage else STAGES:
    folder = work / ('rl' if name == BEST else name) / 'checkpoints'
    manager = CheckpointManager(folder)
    found = manager.best() if name == BEST else manager.latest()
    if found is not None:
      where = manager.path(found.step)
      if ('sft' if name == 'sft' else 'rl') in stages:
        return config, _with_base(work, config, manager, found), where
      if config.lora_rank:  # all weights were trained in this stage
        config = config.replace(lora_rank=0, param_dtype='float32')
      return config, _read(config, manager, found.step), where
  if stage == BEST:
    raise FileNotFoundError(
      f'{work} keeps no best checkpoint: it was not trained with '
      '--config.rl.keep_best=True, or has not been validated yet; choose another '
      '--stage.'
    )
  raise FileNotFoundError(
    f'{work} holds no checkpoint of {stage or " or ".join(STAGES)} yet; train '
    'first, or choose another --stage.'
  )


def _read(
  config: ModelConfig, manager: CheckpointManager, step: int
) -> nnx.State:
  """The policy of a checkpoint; of a model with adapters its base are shapes."""
  abstract = abstract_decoder(config)[1]
  leaves = {sharding.path_of(path): leaf for path, leaf in _leaves(abstract)}
  wanted = {
    p: v for p, v in leaves.items() if not config.lora_rank or 'lora_' in p
  }
  leaves |= manager.read(step, wanted, 'policy')
  return jax.tree.unflatten(jax.tree.structure(abstract), list(leaves.values()))


def _with_base(
  work: pathlib.Path,
  config: ModelConfig,
  manager: CheckpointManager,
  found: Restored,
) -> nnx.State:
  """Adapters of a checkpoint over their base; ValueError where it is another one."""
  noted = hf.read_adapters(work / 'model')
  plain = config.replace(lora_rank=0)
  sft = _full_sft(work)
  last = sft.latest() if sft is not None else None
  if sft is not None and last is not None:
    whole, where = plain.replace(param_dtype='float32'), sft.path(last.step)
    base = jax.tree.map(
      lambda leaf: leaf.astype(config.param_dtype),
      _read(whole, sft, last.step),
    )
  elif noted['base']:
    where = noted['base']
    base = hf.load_hf(
      where, scan_layers=config.scan_layers, param_dtype=config.param_dtype
    )[-1]
  else:
    raise FileNotFoundError(
      f'{work} holds no checkpoint of sft, which is the base of its adapters; copy '
      'the folder sft of the run back.'
    )
  flat = {sharding.path_of(path): leaf for path, leaf in _leaves(base)}
  saved = found.host['learner']['adapters']['base']
  if (own := identity.digest(config, flat)) != saved:
    raise ValueError(
      f'{manager.path(found.step)} has adapters of another base (digest {saved}) than '
      f'{where} ({own}); copy the base of the run back.'
    )
  adapters = lora.split_lora(_read(config, manager, found.step))[0]
  return nnx.merge_state(adapters, base)


def _full_sft(work: pathlib.Path) -> CheckpointManager | None:
  """Returns checkpoints of SFT that are a base of adapters, None where they are not."""
  if 'sft' in hf.read_adapters(work / 'model')['stages']:
    return None
  return CheckpointManager(work / 'sft' / 'checkpoints')


def _score(args: argparse.Namespace) -> None:
  tokens = np.load(args.tokens, allow_pickle=False)
  if args.batch < 1:
    raise ValueError(f'--batch={args.batch} must be at least 1.')
  if not args.temperature > 0:
    raise ValueError(f'--temperature={args.temperature} must be > 0.')
  if tokens.ndim != 2 or tokens.shape[1] < 2 or tokens.dtype.kind not in 'iu':
    raise ValueError(
      f'{args.tokens}: {tokens.dtype} {tokens.shape}; need integers [B, T], '
      'T >= 2.'
    )
  if not args.out.parent.is_dir():
    raise FileNotFoundError(f'no folder {args.out.parent} for --out.')
  config = ModelConfig.from_hf(args.model)
  low, high = int(tokens.min()), int(tokens.max())
  if low < 0 or high >= config.vocab_size:
    raise ValueError(
      f'{args.tokens}: ids in [{low}, {high}], vocabulary is '
      f'[0, {config.vocab_size}); were they made by another tokenizer?'
    )
  config, graphdef, params = hf.load_hf(
    args.model, dtype=args.dtype or 'float32'
  )

  @jax.jit
  def score(params: Any, rows: Any):
    model = nnx.merge(graphdef, params)
    index = jnp.broadcast_to(jnp.arange(rows.shape[1]), rows.shape)
    hidden = model(rows, index, jnp.ones_like(rows))
    return token_logprobs(
      hidden[:, :-1],
      model.unembed,
      rows[:, 1:],
      temperature=args.temperature,
    )[0]

  out = []
  for start in range(0, len(tokens), args.batch):
    rows = tokens[start : start + args.batch].astype(np.int32)
    pad = args.batch - len(rows)  # one shape, compiled once
    rows = np.pad(rows, ((0, pad), (0, 0)))
    out.append(np.asarray(score(params, rows))[: args.batch - pad])
  np.save(args.out, np.concatenate(out))
  print(f'log-probs {(len(tokens), tokens.shape[1] - 1)} to {args.out}')


def _must_be_new(folder: pathlib.Path) -> None:
  if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
    raise FileExistsError(f'{folder} is not empty; give a new folder.')


if __name__ == '__main__':
  sys.exit(main())
