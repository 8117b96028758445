"""Prepares `chaii-hindi-and-tamil-question-answering`: answers in a text.

Texts are in Devanagari and in Tamil script, whose vowels are marks beside letters.
Questions on one text are in the same half. The stand-in's people and places are
coined; its sentences are of few kinds, and a text has several people, so that only
the one of the question has the answer. With `--packages DIR` people have names of Faker's lists.
"""

from __future__ import annotations

import ast

import numpy as np
import pandas as pd

from jaxagent.tasks import kit, language

SOURCE = kit.Source(
  id='chaii-hindi-and-tamil-question-answering',
  url='https://www.kaggle.com/competitions/'
  'chaii-hindi-and-tamil-question-answering/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('chaii-hindi-and-tamil-question-answering.zip (or train.csv)',),
)
# Lists of names, in modules that are read and not imported.
LISTS = {
  'hindi': 'faker/providers/person/hi_IN/__init__.py',
  'tamil': 'faker/providers/person/ta_IN/__init__.py',
}
PACKAGED = kit.Packaged(
  'Faker',
  '40.63.0',
  {
    LISTS['hindi']: 'ae70bcc43afbe97591f597e9a1ccd5a43d34db96d6f532378899bfd7705f4606',
    LISTS['tamil']: 'f1fdc6f3601e17f594d73dee8466ffa8ebfe514375536fe4e4a426a57a406e10',
  },
)
SYLLABLES = {
  'hindi': 'रा मो शी ला नी कु दे वि सु गो पा ता मा री न श प्र ज्यो'.split(),
  'tamil': 'ரா மு கு லா நி வே சு கோ பா தா மா ரி ன் செ ழி யா'.split(),
}
WORKS = {
  'hindi': ('किसान', 'शिक्षक', 'गायक', 'चित्रकार', 'डाक टिकट संग्राहक', 'नाविक'),
  'tamil': ('விவசாயி', 'ஆசிரியர்', 'பாடகர்', 'ஓவியர்', 'கப்பல் மாலுமி', 'தச்சர்'),
}
# Kind of an answer -> what is said and asked of a person.
FACTS = {
  'hindi': {
    'town': (('{who} का जन्म {x} में हुआ था', '{who} {x} में पैदा हुए थे'),
             ('{who} का जन्म कहाँ हुआ था?', '{who} कहाँ पैदा हुए थे?')),
    'year': (('{who} की मृत्यु सन {x} में हुई', 'सन {x} में {who} का निधन हुआ'),
             ('{who} की मृत्यु कब हुई?', '{who} का निधन किस वर्ष हुआ?')),
    'work': (('{who} एक प्रसिद्ध {x} थे', '{who} अपने समय के बड़े {x} माने जाते थे'),
             ('{who} का पेशा क्या था?', '{who} क्या काम करते थे?')),
    'height': (('{who} का घर {x} मीटर ऊँचा है', '{who} ने {x} मीटर ऊँचा घर बनाया'),
               ('{who} का घर कितना ऊँचा है?', '{who} के घर की ऊँचाई कितनी है?')),
  },
  'tamil': {
    'town': (('{who} {x} நகரில் பிறந்தார்', '{who} பிறந்த ஊர் {x} ஆகும்'),
             ('{who} எங்கு பிறந்தார்?', '{who} பிறந்த ஊர் எது?')),
    'year': (('{who} {x} ஆம் ஆண்டு இறந்தார்', '{x} ஆம் ஆண்டில் {who} மறைந்தார்'),
             ('{who} எப்போது இறந்தார்?', '{who} எந்த ஆண்டு மறைந்தார்?')),
    'work': (('{who} ஒரு புகழ்பெற்ற {x} ஆவார்', '{who} சிறந்த {x} என அறியப்பட்டார்'),
             ('{who} செய்த தொழில் என்ன?', '{who} என்ன வேலை செய்தார்?')),
    'height': (('{who} வீடு {x} மீட்டர் உயரம் கொண்டது', '{who} {x} மீட்டர் உயர வீடு கட்டினார்'),
               ('{who} வீடு எவ்வளவு உயரம்?', '{who} வீட்டின் உயரம் என்ன?')),
  },
}  # fmt: skip
FILLERS = {
  'hindi': ('{who} के बारे में बहुत कम लिखा गया है', 'यह क्षेत्र नदी के पास है',
            'लोग आज भी {who} को याद करते हैं', 'यहाँ हर साल मेला लगता है'),
  'tamil': ('{who} பற்றி குறைவாகவே எழுதப்பட்டுள்ளது', 'இந்த பகுதி ஆற்றின் அருகில் உள்ளது',
            'மக்கள் இன்றும் {who} பெயரை நினைவில் வைத்துள்ளனர்', 'இங்கு ஆண்டுதோறும் விழா நடக்கிறது'),
}  # fmt: skip
ENDS = {'hindi': '। ', 'tamil': '. '}


def value(rng, kind, tongue):
  if kind == 'year':
    return str(rng.randint(1700, 2000))
  if kind == 'height':
    return str(rng.randint(3, 90))
  if kind == 'work':
    return language.pick(rng, WORKS[tongue])
  town = language.coined(rng, SYLLABLES[tongue], 2, 3)
  return town + language.pick(
    rng, {'hindi': ('पुर', ' नगर', ''), 'tamil': ('பட்டி', ' நகரம்', '')}[tongue]
  )


def listed(source):
  """(first names of men, last names or these again) of a module of Faker."""
  found = {
    node.targets[0].id: node.value
    for node in ast.walk(ast.parse(source))
    if isinstance(node, ast.Assign)
  }
  last = 'last_names' if isinstance(found.get('last_names'), ast.Tuple) else ''
  lists = (found[name] for name in ('first_names_male', last) if name)
  names = [
    [name for name in ast.literal_eval(value) if not {*name} & {*' ,.'}]
    for value in lists
  ]
  return names[0], names[-1]


def person(rng, tongue, names):
  if names:
    return ' '.join(language.pick(rng, part) for part in names[tongue])
  return ' '.join(
    language.coined(rng, SYLLABLES[tongue], 2, 3) for _ in range(2)
  )


def text(rng, tongue, lists):
  """(context, [(question, answer, where it begins)])."""
  facts, said = FACTS[tongue], []
  names = [person(rng, tongue, lists) for _ in range(rng.randint(2, 5))]
  for who in names:
    for kind in facts:
      if rng.rand() < 0.8:
        x = value(rng, kind, tongue)
        form = language.pick(rng, facts[kind][0])
        said.append((form.replace('{who}', who), x, who, kind))
    for _ in range(rng.randint(1, 4)):
      form = language.pick(rng, FILLERS[tongue])
      said.append((form.replace('{who}', who), '', who, ''))
  said = [said[k] for k in rng.permutation(len(said))]
  context, asked = '', []
  for form, x, who, kind in said:
    if kind:
      start = len(context) + form.index('{x}')
      question = language.pick(rng, facts[kind][1]).replace('{who}', who)
      asked.append((question, x, start))
    context += form.replace('{x}', x) + ENDS[tongue]
  chosen = rng.permutation(len(asked))[: 1 + rng.randint(2)]
  # A question is on the first place that has its answer.
  found = [asked[k] for k in chosen]
  return context.strip(), [(q, x, context.index(x)) for q, x, _ in found]


def standin(files=None):
  rng = np.random.RandomState(129)
  lists = {}
  if files:
    lists = {tongue: listed(files[path]) for tongue, path in LISTS.items()}
  rows = []
  while len(rows) < 1800:
    tongue = 'hindi' if rng.rand() < 0.67 else 'tamil'
    context, asked = text(rng, tongue, lists)
    rows += [(context, *question, tongue) for question in asked]
  names = ['context', 'question', 'answer_text', 'answer_start', 'language']
  table = pd.DataFrame(rows, columns=names)
  table.insert(0, 'id', kit.opaque_ids(rng, len(table), 9))
  return parts(*kit.hold_out(table, 0.4))


def parts(train, test):
  answers = test[['id', 'answer_text']]
  answers.columns = ['id', 'PredictionString']
  return kit.Parts(
    {
      'train.csv': train,
      'test.csv': test.drop(columns=['answer_start', 'answer_text']),
      'sample_submission.csv': answers.assign(PredictionString='dummy text'),
    },
    answers,
    groups=list(test['context']),
    classes=list(test['language']),
  )


def mlebench(public, private):
  test, answers = (
    kit.texts(public / 'test.csv'),
    kit.texts(private / 'test.csv'),
  )
  answers.columns = ['id', 'answer_text']
  test = test.merge(answers, on='id').assign(answer_start='')
  return parts(kit.texts(public / 'train.csv'), test)


def raw(folder):
  return parts(*kit.hold_out(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(
    __doc__, SOURCE, standin, mlebench, raw, packaged=PACKAGED
  )
