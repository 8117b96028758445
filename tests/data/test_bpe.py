"""The byte-level tokenizer of tiny policies."""

from __future__ import annotations

import pytest

from jaxagent.data import bpe

CORPUS = ['model = make_pipeline(StandardScaler(), SVC(C=1.0))\n'] * 20
TEXTS = (
  '',
  'model = 1',
  'Caf\u00e9 \u6f22\u5b57 \U0001f600',
  ' a\n\tb ',
  'never seen: \x00\x7f',
)


@pytest.fixture(scope='module')
def tokenizer():
  return bpe.train(CORPUS, 300)


@pytest.mark.parametrize('text', TEXTS)
def test_round_trip(tokenizer, text):
  ids = tokenizer.encode_response(text)
  assert ids[-1] == tokenizer.eos_id and tokenizer.eos_id not in ids[:-1]
  assert tokenizer.decode_response(ids) == text
  assert tokenizer.encode_prompt(text) == [
    *tokenizer.encode(text),
    tokenizer.sep_id,
  ]


def test_names_of_specials_in_a_text_stay_text(tokenizer):
  text = 'print("<eos> <sep> <pad>")'
  ids = tokenizer.encode(text)
  assert not {0, 1, 2} & set(ids)
  assert tokenizer.decode_response(ids) == text


def test_decoding_stops_at_the_end_token(tokenizer):
  ids = tokenizer.encode_response('model') + tokenizer.encode('rest')
  assert tokenizer.decode_response(ids) == 'model'


def test_training_is_deterministic_and_learns(tokenizer):
  again = bpe.train(CORPUS, 300)
  assert again.encode(CORPUS[0]) == tokenizer.encode(CORPUS[0])
  assert len(tokenizer.encode(CORPUS[0])) < len(CORPUS[0]) / 2
  assert tokenizer.vocab_size <= 300
  with pytest.raises(ValueError, match='vocab_size=100'):
    bpe.train(CORPUS, 100)


def test_save_and_load(tokenizer, tmp_path):
  tokenizer.save(tmp_path / 'a')
  loaded = bpe.load(tmp_path / 'a')
  for text in (*TEXTS, '<eos>'):
    assert loaded.encode(text) == tokenizer.encode(text)
  with pytest.raises(ValueError, match='missing'):
    bpe.load(tmp_path / 'b')
  (tmp_path / 'a' / 'tokenizer.json').write_text('{"x"')
  with pytest.raises(ValueError, match='cannot be read'):
    bpe.load(tmp_path / 'a')


def test_the_folder_is_read_by_transformers(tokenizer, tmp_path):
  transformers = pytest.importorskip('transformers')
  tokenizer.save(tmp_path)
  other = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
  for text in (*TEXTS, 'say <eos>'):
    assert other.encode(text) == tokenizer.encode(text)
  assert (other.pad_token_id, other.eos_token_id) == (0, 1)
