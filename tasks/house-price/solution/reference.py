"""House prices: all columns, ridge and boosting on the logarithm."""

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')


def features(table):
  x = table.drop(columns=['Id', 'SalePrice'], errors='ignore')
  # A class, not a number; and NA is a value of the columns of text.
  x = x.assign(MSSubClass=x['MSSubClass'].astype(str))
  for name in ('GrLivArea', 'LotArea', '1stFlrSF'):
    x[name] = np.log(x[name]).round(6)
  return x


def columns(x):
  number = list(x.select_dtypes('number').columns)
  text = [c for c in x.columns if c not in number]
  return make_column_transformer(
    (make_pipeline(SimpleImputer(strategy='median'), StandardScaler()), number),
    (
      make_pipeline(
        SimpleImputer(strategy='constant', fill_value='none'),
        OneHotEncoder(min_frequency=5, handle_unknown='ignore'),
      ),
      text,
    ),
  )


x_train, x_test = features(train), features(test)
y_train = np.log(train['SalePrice'])
models = [
  make_pipeline(columns(x_train), Ridge(alpha=8.0)),
  make_pipeline(
    columns(x_train),
    GradientBoostingRegressor(
      n_estimators=250, max_depth=3, max_features=0.2, random_state=0
    ),
  ),
]
log = 0
for model, weight in zip(models, (0.6, 0.4)):
  model.fit(x_train, y_train)
  log = log + weight * model.predict(x_test)

pd.DataFrame({'Id': test['Id'], 'SalePrice': np.exp(log).round(2)}).to_csv(
  'submission.csv', index=False
)
