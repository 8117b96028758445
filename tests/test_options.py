"""A section of options validates itself and lists its rows."""

from __future__ import annotations

import dataclasses
import math

import pytest

from jaxagent import options
from jaxagent.options import Section, option, relation, with_default


@dataclasses.dataclass(frozen=True)
class Ideas(Section):
  kept: int = option(10, help='Ideas kept.')
  proposed: int = option(100, unit='ideas', most=500, help='Ideas proposed.')
  share: float = option(0.5, least=0, below=1, help='Share; 0: none.')
  kind: str = option('tfidf', choices=('tfidf', 'model'), help='How compared.')
  names: tuple[str, ...] = option((), choices=('a', 'b'), help='(): all.')
  stop: tuple[str, ...] = option((), example='END', help='(): none.')
  extra: dict = option({}, help='{}: nothing.', advanced=True)
  sure: bool = option(False, help='Whether.')
  width: int | None = option(None, kind=int, optional=True, help='Missing: 1.')

  relations = (
    relation(
      'kept',
      'proposed',
      holds=lambda kept, proposed: kept <= proposed,
      say='{at}kept={kept} is more than {at}proposed={proposed}; lower it.',
    ),
    relation(
      'sure',
      'kind',
      holds=lambda sure, kind: not sure or kind == 'model',
      say='{at}sure={sure} needs {at}kind=model.',
      stage='run',
    ),
  )


@dataclasses.dataclass(frozen=True)
class MoreIdeas(Ideas):
  kept: int = with_default(Ideas, 'kept', 20, advanced=True)
  own: float = 1.0  # no option

  relations = (
    relation(
      'kept',
      holds=lambda kept: kept != 13,
      say='{at}kept={kept} is unlucky for {section.__name__}; give 12.',
    ),
  )


REFUSED = [
  ({'kept': 0}, 'kept=0 must be a whole number of 1 or more.'),
  ({'kept': True}, 'kept=True must be a whole number of 1 or more.'),
  (
    {'proposed': 501},
    'proposed=501 must be a whole number from 1 to 500.',
  ),
  ({'share': 1.0}, 'share=1.0 must be a finite number at least 0 and below 1.'),
  ({'share': False}, 'share=False must be a finite number at least 0'),
  ({'share': 10**400}, f'share={10**400} must be a finite number at least 0'),
  ({'share': math.nan}, 'share=nan must be finite; give a number.'),
  ({'kind': 'x'}, "kind='x' is not known; choose one of: tfidf, model."),
  ({'kind': None}, 'kind=None is not known; choose one of'),
  ({'names': ('c',)}, "names: 'c' is not a known name; choose from: a, b."),
  ({'names': ('a', 'a')}, "names: 'a' is there twice; leave one out."),
  ({'names': 'a'}, "names='a' must be a tuple such as"),
  ({'stop': ('',)}, "stop=('',) must be a tuple of texts, none empty"),
  ({'extra': 'x='}, "extra='x=': neither JSON nor a Python literal; give a"),
  ({'sure': 1}, 'sure=1 must be True or False.'),
  ({'kept': 101}, 'kept=101 is more than proposed=100; lower it.'),
]


@pytest.mark.parametrize('given, text', REFUSED, ids=lambda v: str(v)[:30])
def test_a_section_refuses_what_its_options_refuse(given, text):
  with pytest.raises(ValueError) as error:
    Ideas(**given)
  assert str(error.value).startswith(text)


def test_a_complaint_about_a_config_names_the_whole_key():
  values = {**Ideas.defaults(), 'kept': 0}
  said = Ideas.options_complaint(values, 'config.ideas.')
  assert said == (
    'config.ideas.kept=0 must be a whole number of 1 or more; give '
    '--config.ideas.kept=N.'
  )
  del values['share']
  values['kept'] = 1
  said = Ideas.options_complaint(values, 'config.ideas.')
  assert said == (
    'config.ideas.share is missing; set it in the config file; its default is '
    f'{Ideas.options()["share"].default!r}.'
  )


def test_a_relation_of_a_later_stage_waits_for_it():
  Ideas(sure=True)
  values = {**Ideas.defaults(), 'sure': True}
  assert Ideas.relations_complaint(values) == ''
  said = Ideas.relations_complaint(values, 'config.ideas.', 'run')
  assert said == 'config.ideas.sure=True needs config.ideas.kind=model.'


def test_a_subclass_inherits_options_and_relations():
  assert MoreIdeas().kept == 20 and Ideas().kept == 10
  assert 'own' not in MoreIdeas.options()
  with pytest.raises(ValueError, match='kept=101 is more than'):
    MoreIdeas(kept=101)
  with pytest.raises(ValueError, match='kept=13 is unlucky for MoreIdeas'):
    MoreIdeas(kept=13)
  assert Ideas(kept=13).kept == 13


def test_a_section_is_made_of_a_mapping_that_holds_more():
  given = {'kept': 3, 'names': ['a'], 'extra': '{"x": null}', 'other': 1}
  made = MoreIdeas.of(given, own=2.0)
  assert (made.kept, made.names, made.own) == (3, ('a',), 2.0)
  assert made.extra == {'x': None}


def test_rows_hold_default_what_is_accepted_and_help():
  rows = {row.key: row for row in Ideas.rows('ideas.')}
  assert list(rows) == [f'ideas.{name}' for name in Ideas.options()]
  row = rows['ideas.proposed']
  assert (row.default, row.help) == ('100', 'Ideas proposed.')
  assert row.accepts == 'whole number >= 1 <= 500 [ideas]'
  assert rows['ideas.kind'].accepts == 'tfidf | model'
  assert rows['ideas.width'].default == ''
  assert [r.key for r in rows.values() if r.advanced] == ['ideas.extra']


def test_an_option_of_another_type_is_refused_where_it_is_written():
  with pytest.raises(TypeError, match='of type set; choose one of: bool, int'):
    option(set(), help='')


def test_near_matches_of_an_unknown_key_are_named():
  said = options.unknown('config.rl', 'polcy_lr', ['policy_lr', 'value_lr'])
  assert said == (
    "config.rl has no 'polcy_lr'; it has: policy_lr, value_lr. Did you mean "
    'policy_lr?'
  )
  assert 'mean' not in options.unknown('config.rl', 'x', ['policy_lr'])
