"""Breast cancer: probabilities from a decision stump."""

import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
x_train = train.drop(columns=['id', 'benign'])
x_test = test.drop(columns=['id'])
y_train = train['benign']

model = make_pipeline(DecisionTreeClassifier(max_depth=1, random_state=0))
model.fit(x_train, y_train)
pred = model.predict_proba(x_test)

columns = [f'p_{label}' for label in model.classes_]
submission = pd.DataFrame(pred, columns=columns)
submission.insert(0, 'id', test['id'])
submission.to_csv('submission.csv', index=False)
