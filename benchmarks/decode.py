"""Tokens a second of the native engine, beside other samplers.

  python -m benchmarks.decode [--against transformers,vllm,tunix] [--json]

The same random weights, prompts and lengths for each: 128 requests of 32 to
256 tokens, answers of 16 to 256 (log-uniform, no stop token), n = 1 and n = 8
samples a prompt. What counts are the tokens that were asked for; `transformers`
generates one padded batch with a stop for each row, as TRL does; `vllm` is a
server on this machine, asked over HTTP as the trainer asks it; `tunix` is its
sampler, in an environment of its own (`benchmarks/tunix_sampler.py`), which draws as
many tokens for each row as for the longest. Two passes to warm
up, for the native engine until three in turn compile nothing new (a program is
compiled once it would have paid); then the median of `repeats`. Everything on this machine's
default device, float32.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from benchmarks import machine
from configs import common
from jaxagent.data import bpe
from jaxagent.models import ModelConfig, hf, init_decoder
from jaxagent.rollout.engine import Engine
from jaxagent.rollout.engines.native_engine import NativeEngine, Shapes
from jaxagent.runtime import engines
from jaxagent.types import Request, Sampling

MODELS = {
  '3.5M': ModelConfig(
    vocab_size=2048, hidden_size=256, intermediate_size=704,
    num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    head_dim=64, max_position_embeddings=1024,
  ),
  '20M': ModelConfig(
    vocab_size=8192, hidden_size=448, intermediate_size=1216,
    num_hidden_layers=8, num_attention_heads=7, num_key_value_heads=1,
    head_dim=64, max_position_embeddings=1024,
  ),
}  # fmt: skip
REQUESTS, LONGEST_PROMPT, LONGEST = 128, 256, 256
Job = tuple[np.ndarray, int]  # prompt, tokens wanted


def jobs(config: ModelConfig, n: int, requests: int, seed: int) -> list[Job]:
  """`requests` of them, n in turn with the same prompt."""
  rng = np.random.default_rng(seed)
  out = []
  for index in range(requests):
    if index % n == 0:
      length = rng.integers(32, LONGEST_PROMPT + 1)
      prompt = rng.integers(0, config.vocab_size, length).astype(np.int32)
    out.append((prompt, int(np.exp(rng.uniform(*np.log([16, LONGEST]))))))
  return out


# run(jobs, seed) -> tokens; close(); programs compiled so far.
Sampler = tuple[Callable, Callable, Callable[[], int]]
_WARM_UPS = 30  # at most


def native(config, params, graphdef) -> Sampler:
  engine = NativeEngine(
    graphdef,
    params,
    config,
    Shapes(batch_buckets=(1, 8, 16, 32, 64, 128), max_new_tokens=LONGEST),
  )
  run = functools.partial(_generate, engine)
  return run, engine.close, lambda: engine.compiles


def _generate(engine: Engine, work: Sequence[Job], seed: int) -> int:
  done = engine.generate(
    [
      Request(str(i), prompt, seed + i, Sampling(max_new_tokens=wanted))
      for i, (prompt, wanted) in enumerate(work)
    ]
  )
  return sum(len(c.token_ids) for c in done)


def transformers(config, params, graphdef) -> Sampler:
  del graphdef
  import torch
  from transformers import AutoModelForCausalLM, StoppingCriteria

  with tempfile.TemporaryDirectory() as folder:
    hf.save_hf(folder, config, params)
    model = AutoModelForCausalLM.from_pretrained(folder).float().eval()
  if torch.cuda.is_available():
    model = model.cuda()

  class Enough(StoppingCriteria):
    def __init__(self, at):
      self.at = at

    def __call__(self, input_ids, scores, **kwargs):
      return input_ids.shape[1] >= self.at

  def run(work: Sequence[Job], seed: int) -> int:
    torch.manual_seed(seed)
    width = max(len(p) for p, _ in work)
    ids = torch.zeros((len(work), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, (prompt, _) in enumerate(work):
      ids[i, width - len(prompt) :] = torch.tensor(prompt)
      mask[i, width - len(prompt) :] = 1
    at = torch.tensor([width + wanted for _, wanted in work])
    with torch.no_grad():
      model.generate(
        ids.to(model.device),
        attention_mask=mask.to(model.device),
        do_sample=True,
        top_k=0,
        max_new_tokens=max(wanted for _, wanted in work),
        stopping_criteria=[Enough(at.to(model.device))],
        eos_token_id=None,
        pad_token_id=0,
      )
    return sum(wanted for _, wanted in work)

  return run, lambda: None, lambda: 0


def vllm(config, params, graphdef) -> Sampler:
  options = common.base()
  options.rollout.engine = 'vllm'
  options.rollout.max_prompt_tokens = LONGEST_PROMPT
  options.rollout.max_new_tokens = LONGEST
  work = tempfile.TemporaryDirectory()
  tokenizer = bpe.train([__doc__], 300)
  tokenizer.save(pathlib.Path(work.name) / 'tokenizer')
  endless = SimpleNamespace(
    pad_id=0, eos_ids=(), vocab_size=300, decode_response=None
  )
  engine = engines.make_engine(
    engines.Served(
      options, pathlib.Path(work.name), config, graphdef, params, endless
    )
  )
  engine.update_weights(params, 0)

  def close():
    engine.close()
    work.cleanup()

  return functools.partial(_generate, engine), close, lambda: 0


def tunix(config, params, graphdef) -> Sampler:
  del graphdef
  root = pathlib.Path(__file__).parents[1]
  python = root / '.venv-tunix' / 'bin' / 'python'
  if not python.exists():
    raise SystemExit(f'{python} is missing; see benchmarks/tunix_sampler.py.')
  folder = tempfile.TemporaryDirectory()
  hf.save_hf(folder.name, config, params)
  script = root / 'benchmarks' / 'tunix_sampler.py'
  process = subprocess.Popen(
    [python, script, folder.name, str(LONGEST_PROMPT + LONGEST)],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )

  stdin, stdout = process.stdin, process.stdout
  assert stdin is not None and stdout is not None  # both are pipes

  def answer():
    """Its libraries print to standard output, too."""
    for line in stdout:
      if line.startswith(('[', '"ready"')):
        return json.loads(line)
    raise SystemExit(f'tunix ended with exit status {process.wait()}.')

  answer()

  def run(work: Sequence[Job], seed: int) -> int:
    steps = max(wanted for _, wanted in work)
    # Its padding is told by the id, so that no prompt may hold that.
    prompts = [np.maximum(prompt, 1).tolist() for prompt, _ in work]
    job = {'prompts': prompts, 'steps': steps, 'seed': seed}
    print(
      json.dumps(job | {'width': LONGEST_PROMPT}),
      file=stdin,
      flush=True,
    )
    if answer() != [steps] * len(work):
      raise SystemExit('tunix drew fewer tokens than it was asked for.')
    return sum(wanted for _, wanted in work)

  def close():
    stdin.close()
    process.wait()
    folder.cleanup()

  return run, close, lambda: 0


SAMPLERS = {
  'native': native,
  'transformers': transformers,
  'vllm': vllm,
  'tunix': tunix,
}


def _warm_up(run: Callable, compiles: Callable[[], int]) -> None:
  """Two passes; where programs are compiled, until three bring none."""
  quiet, before = 0, None
  for _ in range(_WARM_UPS):
    run()
    quiet = quiet + 1 if compiles() == before else 0
    before = compiles()
    if quiet == (3 if before else 1):
      return


def measure(name: str, size: str, repeats: int, requests: int) -> list[dict]:
  """Rows of one sampler and model, n = 1 and 8."""
  config = MODELS[size]
  graphdef, params = init_decoder(config, 0)
  run, close, compiles = SAMPLERS[name](config, params, graphdef)
  rows = []
  try:
    for n in (1, 8):
      _warm_up(lambda: run(jobs(config, n, requests, seed=0), 0), compiles)  # noqa: B023
      rates = []
      for repeat in range(repeats):
        start = time.perf_counter()
        tokens = run(jobs(config, n, requests, seed=0), repeat)
        rates.append(tokens / (time.perf_counter() - start))
      rows.append(
        {
          'sampler': name,
          'model': size,
          'n': n,
          'tokens': tokens,
          'tokens_per_s': statistics.median(rates),
          'rates': rates,
        }
      )
      print(
        f'{name:13s} {size:5s} n={n}: {rows[-1]["tokens_per_s"]:8.0f} tokens/s',
        flush=True,
      )
  finally:
    close()
  return rows


def table(result: dict[str, Any]) -> str:
  """Markdown."""
  rate = {
    (r['sampler'], r['model'], r['n']): r['tokens_per_s']
    for r in result['rows']
  }
  names = list(dict.fromkeys(r['sampler'] for r in result['rows']))
  others = [n for n in names if n != 'native']
  lines = [
    '| model | n | '
    + ' | '.join(f'{n}, tokens/s' for n in names)
    + ''.join(f' | times {n}' for n in others)
    + ' |',
    '|---' * (2 + len(names) + len(others)) + '|',
  ]
  for size, n in dict.fromkeys((r['model'], r['n']) for r in result['rows']):
    cells = [f'{rate[name, size, n]:.0f}' for name in names]
    cells += [
      f'{rate["native", size, n] / rate[name, size, n]:.2f}' for name in others
    ]
    lines.append(f'| {size} | {n} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--against', default='transformers')
  parser.add_argument('--models', default=','.join(MODELS))
  parser.add_argument('--repeats', type=int, default=3)
  parser.add_argument('--requests', type=int, default=REQUESTS)
  parser.add_argument('--json', action='store_true', help='save the result')
  args = parser.parse_args()
  names = ['native', *filter(None, args.against.split(','))]
  unknown = set(names) - set(SAMPLERS)
  if unknown:
    parser.error(f'--against={sorted(unknown)}: choose from {list(SAMPLERS)}.')
  rows = []
  for size in args.models.split(','):
    for name in names:
      rows += measure(name, size, args.repeats, args.requests)
  result = {'device': jax.devices()[0].device_kind, 'rows': rows}
  print(table(result))
  if args.json:
    print(machine.save('decode', result))


if __name__ == '__main__':
  main()
