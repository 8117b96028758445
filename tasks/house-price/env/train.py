"""House prices: a shallow tree on three columns."""

import pandas as pd
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeRegressor

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
columns = ['LotArea', 'YearBuilt', 'GrLivArea']
x_train, x_test = train[columns], test[columns]
y_train = train['SalePrice']

model = make_pipeline(DecisionTreeRegressor(max_depth=3, random_state=0))
model.fit(x_train, y_train)
pred = model.predict(x_test)

pd.DataFrame({'Id': test['Id'], 'SalePrice': pred}).to_csv(
  'submission.csv', index=False
)
