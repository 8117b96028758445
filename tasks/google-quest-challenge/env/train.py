"""Scores of questions and answers: a line through the three lengths."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
targets = list(pd.read_csv('data/sample_submission.csv').columns[1:])


def features(table):
  texts = table[['question_title', 'question_body', 'answer']].fillna('')
  return np.log1p(texts.apply(lambda column: column.str.len()))


x_train, x_test = features(train), features(test)
y_train = train[targets]

model = make_pipeline(LinearRegression())
model.fit(x_train, y_train)
pred = model.predict(x_test).round(8)

submission = pd.DataFrame(pred, columns=targets)
submission.insert(0, 'qa_id', test['qa_id'])
submission.to_csv('submission.csv', index=False)
