"""Essay scoring: a line through the number of words."""

import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')


def features(table):
  return table['full_text'].str.split().str.len().to_frame('words')


x_train, x_test = features(train), features(test)
y_train = train['score']

model = make_pipeline(LinearRegression())
model.fit(x_train, y_train)
pred = model.predict(x_test)

score = np.clip(np.round(np.round(pred, 6)), 1, 6).astype(int)
pd.DataFrame({'essay_id': test['essay_id'], 'score': score}).to_csv(
  'submission.csv', index=False
)
