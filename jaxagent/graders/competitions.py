"""Grader, columns and direction of each competition.

Names are the sources': mle-bench's, else the folder's in MLAgentBench. Where
papers and code disagree about a metric, NAME is the default and NAME:METRIC
the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from jaxagent.graders import compat, strict

if TYPE_CHECKING:
  import pandas as pd


@dataclasses.dataclass(frozen=True)
class Competition:
  """One competition's grader.

  id_column: empty: rows have no id and stand in the answers' order.
  targets: the submission's columns besides the id; empty: all of the
    answers' (many classes).
  cells: what a cell may hold in strict mode: 'number', 'probability',
    'distribution' (probabilities whose row sums to one), 'non_negative',
    'integer', 'boolean', 'text' (not empty) or 'optional_text' (an empty
    cell is an empty answer: an empty mask, no words selected). Of arrays:
    'pointer' (whole numbers from 0 to the last axis), 'weight' (rows of
    probabilities) or 'measured' (of a program, see `speed`).
  optional: columns that may be there and are ignored.
  strict_score: replaces `score` in strict mode where that has a quirk which
    survives alignment.
  strict_check: of (texts of the one target, answers): refuses texts that are no answer,
    of all rows, whichever are scored.
  id_alias: another name that the id column may have.
  arrays: the submission is arrays, not a table.
  truth: columns of the answers that are compared, where they are not the targets; the
    first is what the one target predicts.
  """

  id_column: str
  targets: tuple[str, ...]
  score: Callable[..., float]
  cells: str
  higher_is_better: bool = True
  strict_score: Callable[..., float] | None = None
  strict_check: Callable[..., None] | None = None
  optional: tuple[str, ...] = ()
  id_alias: str = ''
  arrays: bool = False
  truth: tuple[str, ...] = ()

  @property
  def text_columns(self) -> tuple[str, ...]:
    """Columns that are read as text: numbers and `NA` are names there."""
    texts = self.targets if self.cells in ('text', 'optional_text') else ()
    return tuple(n for n in (self.id_column, self.id_alias, *texts) if n)

  def columns(self, answers: pd.DataFrame) -> tuple[str, ...]:
    """The target columns for these answers."""
    if self.targets:
      return self.targets
    return tuple(c for c in answers.columns if c != self.id_column)


def _auc(id_column: str, target: str) -> Competition:
  return Competition(
    id_column, (target,), compat.probability_auc, 'probability'
  )


_CLASSES = tuple(str(k) for k in range(10))
_DIMENSIONS = (
  'cohesion',
  'syntax',
  'vocabulary',
  'phraseology',
  'grammar',
  'conventions',
)

_MLE_BENCH: dict[str, Competition] = {
  'AI4Code': Competition(
    'id',
    ('cell_order',),
    compat.cell_order_tau,
    'text',
    strict_check=strict.check_cell_orders,
  ),
  'aerial-cactus-identification': _auc('id', 'has_cactus'),
  'chaii-hindi-and-tamil-question-answering': Competition(
    'id', ('PredictionString',), compat.question_jaccard, 'text'
  ),
  'denoising-dirty-documents': Competition(
    'id',
    ('value',),
    compat.pixel_rmse,
    'number',
    False,
    strict_score=strict.pixel_rmse,
  ),
  'detecting-insults-in-social-commentary': dataclasses.replace(
    _auc('Comment', 'Insult'), optional=('Date',)
  ),
  'dogs-vs-cats-redux-kernels-edition': Competition(
    'id', ('label',), compat.binary_log_loss, 'probability', False
  ),
  'google-research-identify-contrails-reduce-global-warming': Competition(
    'record_id',
    ('encoded_pixels',),
    compat.contrail_dice,
    'text',
    strict_score=strict.contrail_dice,
    strict_check=strict.check_contrail_masks,
    optional=('height', 'width'),
  ),
  'google-quest-challenge': Competition(
    'qa_id',
    (),
    compat.quest_spearman,
    'number',
    strict_score=strict.quest_spearman,
  ),
  'jigsaw-toxic-comment-classification-challenge': Competition(
    'id', (), compat.toxic_auc, 'number'
  ),
  'jigsaw-unintended-bias-in-toxicity-classification': Competition(
    'id',
    ('prediction',),
    compat.unintended_bias,
    'number',
    truth=('toxicity', *compat.IDENTITIES),
  ),
  'leaf-classification': Competition(
    'id', (), compat.leaf_log_loss, 'distribution', False
  ),
  'learning-agency-lab-automated-essay-scoring-2': Competition(
    'essay_id',
    ('score',),
    compat.essay_kappa,
    'integer',
    strict_score=strict.essay_kappa,
    optional=('full_text',),
  ),
  'lmsys-chatbot-arena': Competition(
    'id',
    ('winner_model_a', 'winner_model_b', 'winner_tie'),
    compat.arena_log_loss,
    'distribution',
    False,
  ),
  'mlsp-2013-birds': _auc('Id', 'Probability'),
  'multi-modal-gesture-recognition': Competition(
    'Id',
    ('Sequence',),
    compat.gesture_distance,
    'text',
    False,
    strict_check=strict.check_signs,
  ),
  'nomad2018-predict-transparent-conductors': Competition(
    'id',
    ('formation_energy_ev_natom', 'bandgap_energy_ev'),
    compat.conductor_rmsle,
    'non_negative',
    False,
  ),
  'osic-pulmonary-fibrosis-progression': Competition(
    'Patient_Week', ('FVC', 'Confidence'), compat.fibrosis_likelihood, 'number'
  ),
  'plant-pathology-2020-fgvc7': Competition(
    'image_id',
    ('healthy', 'multiple_diseases', 'rust', 'scab'),
    compat.column_auc,
    'number',
  ),
  'random-acts-of-pizza': _auc('request_id', 'requester_received_pizza'),
  'spaceship-titanic': Competition(
    'PassengerId', ('Transported',), compat.label_accuracy, 'boolean'
  ),
  'spooky-author-identification': Competition(
    'id', (), compat.spooky_log_loss, 'distribution', False
  ),
  'statoil-iceberg-classifier-challenge': Competition(
    'id', ('is_iceberg',), compat.binary_log_loss, 'probability', False
  ),
  'tabular-playground-series-dec-2021': Competition(
    'Id', ('Cover_Type',), compat.label_accuracy, 'integer'
  ),
  'tabular-playground-series-may-2022': _auc('id', 'target'),
  'tgs-salt-identification-challenge': Competition(
    'id',
    ('rle_mask',),
    compat.salt_precision,
    'optional_text',
    strict_score=strict.salt_precision,
    strict_check=strict.check_salt_masks,
  ),
  'tweet-sentiment-extraction': Competition(
    'textID',
    ('selected_text',),
    compat.tweet_jaccard,
    'optional_text',
    strict_score=strict.tweet_jaccard,
  ),
  'us-patent-phrase-to-phrase-matching': Competition(
    'id', ('score',), compat.patent_pearson, 'number'
  ),
  'whale-categorization-playground': Competition(
    'Image', ('Id',), compat.whale_precision, 'text'
  ),
}

_MLAGENTBENCH: dict[str, Competition] = {
  'CLRS': Competition('', (), compat.pointer_accuracy, 'pointer', arrays=True),
  'CLRS:mse': Competition(
    '', (), compat.pointer_mse, 'pointer', False, arrays=True
  ),
  'amp-parkinsons-disease-progression-prediction': Competition(
    'prediction_id',
    ('rating',),
    compat.rating_smape,
    'non_negative',
    False,
    optional=('visit_month',),
  ),
  'babylm': Competition(
    '', (), compat.symbol_perplexity, 'weight', False, arrays=True
  ),
  'cifar10': Competition(
    'id',
    _CLASSES,
    compat.largest_column,
    'number',
    strict_score=strict.largest_column,
    id_alias='Unnamed: 0',
  ),
  'detecting-insults-in-social-commentary:accuracy': Competition(
    'Comment',
    ('Insult',),
    compat.thresholded_accuracy,
    'probability',
    optional=('Date',),
  ),
  'fathomnet': Competition(
    'id',
    ('categories',),
    compat.category_precision,
    'text',
    strict_score=strict.category_precision,
    strict_check=strict.check_categories,
    optional=('osd',),
  ),
  'feedback': Competition(
    'text_id', _DIMENSIONS, compat.essay_mcrmse, 'number', False
  ),
  'house-price': Competition(
    'Id', ('SalePrice',), compat.price_mae, 'number', False
  ),
  'identify-contrails': Competition(
    'record_id',
    ('encoded_pixels',),
    compat.contrail_image_dice,
    'text',
    strict_score=strict.contrail_image_dice,
    strict_check=strict.check_contrail_masks,
    optional=('height', 'width'),
  ),
  'imdb': Competition(
    'idx',
    ('0', '1'),
    compat.largest_column,
    'number',
    strict_score=strict.largest_column,
  ),
  'ogbn-arxiv': Competition('', ('0',), compat.row_accuracy, 'integer'),
  'spaceship-titanic:mlagentbench': Competition(
    'PassengerId', ('Transported',), compat.position_accuracy, 'boolean'
  ),
}

COMPETITIONS = _MLE_BENCH | _MLAGENTBENCH
