"""Which ids a text gets: tokenizer.json decides, other readers are held to it."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest
import transformers
from tokenizers import (
  Tokenizer,
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  trainers,
)

from jaxagent.data import bpe, chat
from jaxagent.files import model_files, readings
from jaxagent.testing import small_hf

# The first major version whose class for model_type qwen2 replaces the parts
# of tokenizer.json.
REPLACES = int(transformers.__version__.split('.')[0]) >= 5
TEXTS = (
  *readings.PROBES,
  'cafe\u0301',
  'Action Input: {"script_name": "train.py"}',
)


def _library(pattern: str = '[a-c]*.py'):
  files = sorted(pathlib.Path(json.__file__).parents[1].glob(pattern))
  return (f.read_text(encoding='utf-8', errors='replace') for f in files)


@pytest.fixture(scope='module')
def own():
  return bpe.train(_library(), 1024)


@pytest.fixture(scope='module')
def foreign(tmp_path_factory):
  """Folders of qwen2 models whose tokenizers are of other families."""
  top = tmp_path_factory.mktemp('foreign')
  for name, tokenizer in (
    ('gpt2', _gpt2()),
    ('llama', _llama()),
    ('bert', _bert()),
  ):
    folder = small_hf.make(top / name, vocab_size=600, hidden_size=16)
    tokenizer.save(str(folder / 'tokenizer.json'))
  return top


def _trained(tokenizer: Tokenizer, alphabet) -> Tokenizer:
  trainer = trainers.BpeTrainer(
    vocab_size=600,
    special_tokens=list(small_hf.SPECIAL),
    initial_alphabet=alphabet,
    show_progress=False,
  )
  tokenizer.train_from_iterator(_library('[a-b]*.py'), trainer)
  return tokenizer


def _gpt2() -> Tokenizer:
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  return _trained(tokenizer, pre_tokenizers.ByteLevel.alphabet())


def _llama() -> Tokenizer:
  """Blanks are a sign of their own, and one before a text is not kept."""
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first')
  tokenizer.decoder = decoders.Metaspace(prepend_scheme='first')
  return _trained(tokenizer, sorted(set(''.join(TEXTS)) - {' '}))


def _bert() -> Tokenizer:
  tokenizer = Tokenizer(models.BPE())
  tokenizer.normalizer = normalizers.Lowercase()
  tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
  return _trained(tokenizer, [chr(i) for i in range(33, 127)])


def _raw(folder, text) -> list[int]:
  tokenizer = Tokenizer.from_file(str(folder / 'tokenizer.json'))
  tokenizer.encode_special_tokens = True
  return tokenizer.encode(text, add_special_tokens=False).ids


def _with_model(folder, model_type) -> dict:
  raw = {'model_type': model_type, 'hidden_size': 32, 'num_attention_heads': 2}
  (folder / 'config.json').write_text(json.dumps(raw))
  return raw


@pytest.mark.parametrize('model_type', ('qwen2', 'qwen3'))
def test_auto_tokenizer_gives_the_ids_of_the_own_bpe(own, tmp_path, model_type):
  own.save(tmp_path)
  readings.check_readers(tmp_path, _with_model(tmp_path, model_type))
  theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
  for text in (*TEXTS, '<eos> <pad> <|endoftext|>', ''):
    ids = own.encode(text)
    assert theirs(text, add_special_tokens=False)['input_ids'] == ids
    assert theirs.decode(ids) == own.decode_response(ids)
  assert (theirs.pad_token_id, theirs.eos_token_id, theirs.sep_token_id) == (
    0,
    1,
    2,
  )
  assert len(theirs) == own.vocab_size, 'nothing is added behind the vocabulary'


@pytest.mark.parametrize('name', ('gpt2', 'llama'))
def test_ids_and_texts_are_those_of_tokenizer_json(foreign, name, tmp_path):
  folder = foreign / name
  tokenizer = chat.load(folder)
  readings.copy(folder, tmp_path)
  copied = chat.load(tmp_path)
  raw = Tokenizer.from_file(str(folder / 'tokenizer.json'))
  for text in (*TEXTS, ' x', 'say <|im_end|>'):
    ids = _raw(folder, text)
    assert tokenizer.encode(text) == copied.encode(text) == ids
    back = raw.decode(ids, skip_special_tokens=False)
    assert tokenizer.decode_response(ids) == copied.decode_response(ids) == back
  assert tokenizer.encode_prompt('x') == copied.encode_prompt('x')


@pytest.mark.skipif(
  not REPLACES, reason='this transformers keeps tokenizer.json'
)
@pytest.mark.parametrize('name', ('gpt2', 'llama'))
def test_another_reading_is_refused_by_example(foreign, name):
  folder = foreign / name
  raw = json.loads((folder / 'config.json').read_text())
  with pytest.raises(ValueError) as error:
    readings.check_readers(folder, raw)
  said = str(error.value)
  assert str(folder) in said and 'Qwen2Tokenizer' in said and '\n' not in said
  assert f'transformers {transformers.__version__}' in said
  theirs = transformers.AutoTokenizer.from_pretrained(folder)
  text = eval(said.split('gives ')[1].split(' the ids')[0])  # noqa: S307
  found = theirs(text, add_special_tokens=False)['input_ids']
  want = _raw(folder, text)
  assert found != want
  both = said.split(' the ids ')[1].split('tokenizer.json ')
  for ids, shown in zip((found, want), both):
    inside = shown[: shown.index(']')].strip('[ .').split(' ..')[0]
    assert inside in str(ids)


@pytest.mark.parametrize('name, told', (('gpt2', True), ('own', False)))
def test_where_4_is_installed_what_5_reads_is_told(
  foreign, own, tmp_path, monkeypatch, caplog, name, told
):
  """Transformers 4 keeps the file, so it finds no difference by itself."""
  folder = foreign / name
  if name == 'own':
    own.save(folder := tmp_path)

  def keeps(folder, called=None):
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)

  version = readings._version
  monkeypatch.setattr(readings, '_auto', keeps)
  monkeypatch.setattr(
    readings,
    '_version',
    lambda n: '4.57.6' if n == 'transformers' else version(n),
  )
  readings.check_readers(folder, {'model_type': 'qwen2'})
  assert ('transformers 5 (Qwen2Tokenizer)' in caplog.text) == told


def test_the_same_file_under_qwen3_is_kept(foreign):
  raw = json.loads((foreign / 'gpt2' / 'config.json').read_text())
  readings.check_readers(foreign / 'gpt2', raw | {'model_type': 'qwen3'})


def test_a_difference_in_a_runs_own_text_is_found(own, tmp_path, monkeypatch):
  """Probes do not show everything; here a reader that changes one word."""
  own.save(tmp_path)
  read = readings._auto

  def other(folder, called=None):
    theirs = read(folder, called)
    theirs.backend_tokenizer.normalizer = normalizers.Sequence(
      [normalizers.NFC(), normalizers.Replace('pericarp', 'husk')]
    )
    return theirs

  monkeypatch.setattr(readings, '_auto', other)
  readings.check_readers(tmp_path, {'model_type': 'qwen2'})
  with pytest.raises(ValueError, match="gives 'the pericarp\\\\n' the ids"):
    readings.check_readers(
      tmp_path, {'model_type': 'qwen2'}, ['one\nthe pericarp\nthree']
    )


def test_another_way_back_is_refused(own, tmp_path, monkeypatch):
  own.save(tmp_path)
  read = readings._auto

  def other(folder, called=None):
    theirs = read(folder, called)
    theirs.backend_tokenizer.decoder = decoders.Sequence(
      [decoders.ByteLevel(), decoders.Strip(' ', 1, 0)]
    )
    return theirs

  monkeypatch.setattr(readings, '_auto', other)
  with pytest.raises(ValueError, match="turns .* back into '   indented"):
    readings.check_readers(tmp_path, {'model_type': 'qwen2'})


def test_a_tokenizer_that_loses_code_is_refused(foreign):
  with pytest.raises(ValueError, match='code would be lost'):
    chat.load(foreign / 'bert')


def test_a_lost_first_blank_is_told(foreign, caplog):
  chat.load(foreign / 'llama')
  assert "turns ' a blank before and after ' into 'a blank" in caplog.text


def test_what_transformers_5_saved_is_read_and_given_to_both(foreign, tmp_path):
  """4.56 knows neither the class nor a list of extra_special_tokens."""
  folder = shutil.copytree(foreign / 'gpt2', tmp_path / 'm')
  told = {
    'backend': 'tokenizers', 'eos_token': '<|im_end|>',
    'extra_special_tokens': ['<|im_start|>', '<|im_end|>'], 'is_local': True,
    'pad_token': '<|endoftext|>', 'tokenizer_class': 'TokenizersBackend',
  }  # fmt: skip
  (folder / 'tokenizer_config.json').write_text(json.dumps(told))
  (folder / 'chat_template.jinja').write_text(small_hf.CHAT_TEMPLATE)
  tokenizer = chat.load(folder)
  assert tokenizer.eos_ids == (2,) and tokenizer.encode_prompt('x')[0] == 1
  readings.copy(folder, tmp_path / 'out')
  given = json.loads((tmp_path / 'out' / 'tokenizer_config.json').read_text())
  assert given['tokenizer_class'] == 'PreTrainedTokenizerFast'
  assert given['additional_special_tokens'] == ['<|im_start|>', '<|im_end|>']
  assert 'extra_special_tokens' not in given
  want = (folder / 'tokenizer.json').read_bytes()
  assert (tmp_path / 'out' / 'tokenizer.json').read_bytes() == want
  assert chat.load(tmp_path / 'out').encode_prompt(
    'x'
  ) == tokenizer.encode_prompt('x')


def test_a_folder_of_vocabulary_and_merges_gets_a_tokenizer_json(
  foreign, tmp_path
):
  folder = tmp_path / 'm'
  folder.mkdir()
  raw = json.loads((foreign / 'gpt2' / 'tokenizer.json').read_text())
  (folder / 'vocab.json').write_text(json.dumps(raw['model']['vocab']))
  pairs = (
    m if isinstance(m, str) else ' '.join(m) for m in raw['model']['merges']
  )
  (folder / 'merges.txt').write_text('\n'.join(['#version: 0.2', *pairs]))
  shutil.copy(foreign / 'gpt2' / 'config.json', folder)
  told = {'tokenizer_class': 'Qwen2Tokenizer', 'eos_token': '<|im_end|>'}
  (folder / 'tokenizer_config.json').write_text(json.dumps(told))
  tokenizer = chat.load(folder)
  readings.copy(folder, tmp_path / 'out')
  for text in TEXTS:
    assert tokenizer.encode(text) == _raw(tmp_path / 'out', text)


def test_truncation_that_a_file_asks_for_cuts_no_text(own, tmp_path):
  own.save(tmp_path)
  raw = json.loads((tmp_path / 'tokenizer.json').read_text())
  raw['truncation'] = {
    'direction': 'Right', 'max_length': 4, 'strategy': 'LongestFirst', 'stride': 0
  }  # fmt: skip
  (tmp_path / 'tokenizer.json').write_text(json.dumps(raw))
  assert bpe.load(tmp_path).encode(TEXTS[1]) == own.encode(TEXTS[1])


def test_a_run_keeps_the_ids_that_it_began_with(own, tmp_path):
  file = tmp_path / readings.PROBE_FILE
  readings.check_same(file, own)
  readings.check_same(file, own)
  held = json.loads(file.read_text())
  assert held['versions']['transformers'] == transformers.__version__
  other = bpe.train(_library('[d-f]*.py'), 1024)
  with pytest.raises(
    ValueError, match='gave ids .* under transformers .*--work_dir'
  ):
    readings.check_same(file, other)


def test_another_chat_template_is_other_ids(foreign, tmp_path):
  folder = shutil.copytree(foreign / 'gpt2', tmp_path / 'm')
  file = tmp_path / readings.PROBE_FILE
  readings.check_same(file, chat.load(folder))
  told = json.loads((folder / 'tokenizer_config.json').read_text())
  told['chat_template'] = told['chat_template'].replace('helpful', 'useful')
  (folder / 'tokenizer_config.json').write_text(json.dumps(told))
  with pytest.raises(ValueError, match='gave prompt '):
    readings.check_same(file, chat.load(folder))


def test_a_template_that_writes_the_day_is_no_other_tokenizer(
  foreign, tmp_path
):
  folder = shutil.copytree(foreign / 'gpt2', tmp_path / 'm')
  told = json.loads((folder / 'tokenizer_config.json').read_text())
  told['chat_template'] = "{{ strftime_now('%f') }}" + told['chat_template']
  (folder / 'tokenizer_config.json').write_text(json.dumps(told))
  file = tmp_path / readings.PROBE_FILE
  for _ in range(2):
    readings.check_same(file, chat.load(folder))


def test_texts_of_a_run_are_those_of_its_files(tmp_path):
  for name, text in (
    (
      'collect/trajectories.jsonl',
      '{"a": [{"response": "one"}]}\n{"b": "two"}\n{"c',
    ),
    ('rl/traces/update_000000.jsonl', '{"response": "three"}\n'),
    (
      'eval/rl.json',
      '{"x": {"y": "four", "z": {"__kind__": "array", "data": "no"}}}',
    ),
    ('eval/damaged.json', '{"x": '),
    ('tasks/wine/scripts/research_problem.txt', 'five'),
    ('logs/other.json', '"no"'),
  ):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text)
  found = list(readings.texts_of_run(tmp_path))
  assert found == ['one', 'two', 'three', 'four', 'five']


@pytest.mark.parametrize(
  'name, raw, said',
  [
    ('special_tokens_map.json', b'{"eos_token": ', 'not JSON'),
    ('added_tokens.json', b'[]', 'holds a list'),
    ('tokenizer_config.json', b'', 'empty'),
    ('generation_config.json', b'{', 'not JSON'),
    ('chat_template.jinja', b'caf\xe9', 'not UTF-8'),
    ('tokenizer.json', b'{"model": {"type": "BPE"}}', 'not a tokenizer'),
  ],
)
def test_a_damaged_file_of_a_tokenizer_is_named(
  foreign, tmp_path, name, raw, said
):
  folder = shutil.copytree(foreign / 'gpt2', tmp_path / 'm')
  (folder / name).write_bytes(raw)
  with pytest.raises(ValueError, match=f'{folder / name}: {said}') as error:
    chat.load(folder)
  assert '\n' not in str(error.value)


def test_a_pointer_among_the_copied_files_is_named(tmp_path):
  (tmp_path / 'tokenizer.model').write_text(
    'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n'
  )
  with pytest.raises(ValueError, match='tokenizer.model: a Git LFS pointer'):
    model_files.copy_tokenizer(tmp_path, tmp_path / 'out')
