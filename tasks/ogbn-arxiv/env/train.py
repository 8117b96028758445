"""Subjects of papers: a linear classifier on the features alone."""

import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

x = pd.read_csv('data/raw/node-feat.csv.gz', header=None).to_numpy()
y = pd.read_csv('data/raw/node-label.csv.gz', header=None)[0].to_numpy()
train = pd.read_csv('data/split/time/train.csv.gz', header=None)[0]
test = pd.read_csv('data/split/time/test.csv.gz', header=None)[0]
x_train, x_test = x[train], x[test]
y_train = y[train]

model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
model.fit(x_train, y_train)
pred = model.predict(x_test)

pd.DataFrame({'0': pred}).to_csv('submission.csv', index=False)
