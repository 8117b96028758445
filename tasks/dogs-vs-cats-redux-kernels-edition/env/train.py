"""Dogs and cats: logistic regression on the colours of 8 x 8 pixels."""

import zipfile

import numpy as np
import pandas as pd
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

sample = pd.read_csv('data/sample_submission.csv')


def features(path):
  """File name -> its features."""
  out = {}
  with zipfile.ZipFile(path) as archive:
    for name in archive.namelist():
      if name.endswith('.jpg'):
        with archive.open(name) as file:
          image = Image.open(file).convert('RGB').resize((8, 8))
        out[name.split('/')[-1]] = np.asarray(image, dtype=float).ravel()
  return out


pictures = features('data/train.zip')
x_train = np.array(list(pictures.values()))
y_train = np.array([name.startswith('dog') for name in pictures]).astype(int)
tests = features('data/test.zip')
x_test = np.array([tests[f'{number}.jpg'] for number in sample['id']])

model = make_pipeline(StandardScaler(), LogisticRegression(C=0.001))
model.fit(x_train, y_train)
pred = model.predict_proba(x_test)[:, 1]

pd.DataFrame({'id': sample['id'], 'label': pred.round(6)}).to_csv(
  'submission.csv', index=False
)
