"""Forest cover: a tree of depth 2 on the elevation."""

import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
x_train, x_test = train[['Elevation']], test[['Elevation']]
y_train = train['Cover_Type']

model = make_pipeline(DecisionTreeClassifier(max_depth=2, random_state=0))
model.fit(x_train, y_train)
pred = model.predict(x_test)

pd.DataFrame({'Id': test['Id'], 'Cover_Type': pred}).to_csv(
  'submission.csv', index=False
)
