"""Prepares `house-price`: what houses were sold for.

MLAgentBench's split: the last 20 % of the rows of train.csv are the test set. The
stand-in has the columns of the Ames data and their values; the prices follow a
formula of size, quality, age and quarter. `NA` is a value of some columns (no
alley, no pool) and a missing number in others, as in the original.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from jaxagent.tasks import kit

SOURCE = kit.Source(
  id='home-data-for-ml-course',
  url='https://www.kaggle.com/competitions/home-data-for-ml-course/data',
  rules='of the competition, to be accepted on its page (Kaggle)',
  files=('home-data-for-ml-course.zip (or train.csv)',),
  mlebench=False,
)
QUARTERS = (
  'Blmngtn', 'Blueste', 'BrDale', 'BrkSide', 'ClearCr', 'CollgCr', 'Crawfor',
  'Edwards', 'Gilbert', 'IDOTRR', 'MeadowV', 'Mitchel', 'NAmes', 'NoRidge',
  'NPkVill', 'NridgHt', 'NWAmes', 'OldTown', 'SWISU', 'Sawyer', 'SawyerW',
  'Somerst', 'StoneBr', 'Timber', 'Veenker',
)  # fmt: skip
# Column -> values and how likely each is; '' is written as NA.
CHOICES = {
  'MSSubClass': ((20, 30, 50, 60, 70, 80, 90, 120, 160, 190),
                 (37, 5, 10, 20, 4, 4, 4, 6, 4, 2)),
  'MSZoning': (('RL', 'RM', 'FV', 'RH', 'C (all)'), (79, 15, 4, 1, 1)),
  'Street': (('Pave', 'Grvl'), (995, 5)),
  'Alley': (('', 'Grvl', 'Pave'), (94, 3, 3)),
  'LotShape': (('Reg', 'IR1', 'IR2', 'IR3'), (63, 33, 3, 1)),
  'LandContour': (('Lvl', 'Bnk', 'HLS', 'Low'), (90, 4, 3, 3)),
  'Utilities': (('AllPub', 'NoSeWa'), (999, 1)),
  'LotConfig': (('Inside', 'Corner', 'CulDSac', 'FR2', 'FR3'),
                (72, 18, 6, 3, 1)),
  'LandSlope': (('Gtl', 'Mod', 'Sev'), (95, 4, 1)),
  'Condition1': (('Norm', 'Feedr', 'Artery', 'RRAn', 'PosN', 'RRAe', 'PosA'),
                 (86, 6, 3, 2, 1, 1, 1)),
  'Condition2': (('Norm', 'Feedr', 'Artery', 'PosN'), (990, 5, 3, 2)),
  'BldgType': (('1Fam', 'TwnhsE', 'Duplex', 'Twnhs', '2fmCon'),
               (84, 8, 3, 3, 2)),
  'HouseStyle': (('1Story', '2Story', '1.5Fin', 'SLvl', 'SFoyer'),
                 (50, 31, 11, 5, 3)),
  'RoofStyle': (('Gable', 'Hip', 'Flat', 'Gambrel', 'Mansard'),
                (78, 19, 1, 1, 1)),
  'RoofMatl': (('CompShg', 'Tar&Grv', 'WdShngl'), (98, 1, 1)),
  'Exterior1st': (('VinylSd', 'HdBoard', 'MetalSd', 'Wd Sdng', 'Plywood'),
                  (40, 16, 16, 15, 13)),
  'Exterior2nd': (('VinylSd', 'MetalSd', 'HdBoard', 'Wd Sdng', 'CmentBd'),
                  (40, 16, 16, 15, 13)),
  'ExterCond': (('TA', 'Gd', 'Fa', 'Ex', 'Po'), (875, 100, 20, 3, 2)),
  'Foundation': (('PConc', 'CBlock', 'BrkTil', 'Slab', 'Stone', 'Wood'),
                 (44, 43, 10, 1, 1, 1)),
  'BsmtCond': (('TA', 'Gd', 'Fa', 'Po'), (92, 4, 3, 1)),
  'BsmtExposure': (('No', 'Av', 'Gd', 'Mn'), (65, 16, 10, 9)),
  'BsmtFinType1': (('Unf', 'GLQ', 'ALQ', 'BLQ', 'Rec', 'LwQ'),
                   (30, 29, 15, 10, 10, 6)),
  'BsmtFinType2': (('Unf', 'Rec', 'LwQ', 'BLQ', 'ALQ', 'GLQ'),
                   (88, 4, 3, 2, 2, 1)),
  'Heating': (('GasA', 'GasW', 'Grav', 'Wall'), (98, 1, 0.5, 0.5)),
  'CentralAir': (('Y', 'N'), (93, 7)),
  'Electrical': (('SBrkr', 'FuseA', 'FuseF', 'FuseP'), (91, 6, 2, 1)),
  'Functional': (('Typ', 'Min2', 'Min1', 'Mod', 'Maj1', 'Maj2'),
                 (93, 2, 2, 1, 1, 1)),
  'GarageType': (('Attchd', 'Detchd', 'BuiltIn', 'Basment', 'CarPort', ''),
                 (60, 26, 6, 1, 1, 6)),
  'GarageCond': (('TA', 'Fa', 'Gd', 'Po'), (95, 3, 1, 1)),
  'GarageQual': (('TA', 'Fa', 'Gd', 'Po'), (94, 4, 1, 1)),
  'PavedDrive': (('Y', 'N', 'P'), (92, 6, 2)),
  'PoolQC': (('', 'Gd', 'Ex', 'Fa'), (995, 2, 2, 1)),
  'Fence': (('', 'MnPrv', 'GdPrv', 'GdWo', 'MnWw'), (81, 11, 4, 3, 1)),
  'MiscFeature': (('', 'Shed', 'Gar2', 'Othr'), (963, 33, 2, 2)),
  'SaleType': (('WD', 'New', 'COD', 'ConLD', 'CWD', 'Oth'),
               (87, 8, 3, 1, 0.5, 0.5)),
  'SaleCondition': (('Normal', 'Partial', 'Abnorml', 'Family', 'Alloca'),
                    (82, 9, 7, 1, 1)),
}  # fmt: skip
GRADES = ('Fa', 'TA', 'Gd', 'Ex')
ORDER = """Id MSSubClass MSZoning LotFrontage LotArea Street Alley LotShape
  LandContour Utilities LotConfig LandSlope Neighborhood Condition1 Condition2
  BldgType HouseStyle OverallQual OverallCond YearBuilt YearRemodAdd RoofStyle
  RoofMatl Exterior1st Exterior2nd MasVnrType MasVnrArea ExterQual ExterCond
  Foundation BsmtQual BsmtCond BsmtExposure BsmtFinType1 BsmtFinSF1 BsmtFinType2
  BsmtFinSF2 BsmtUnfSF TotalBsmtSF Heating HeatingQC CentralAir Electrical
  1stFlrSF 2ndFlrSF LowQualFinSF GrLivArea BsmtFullBath BsmtHalfBath FullBath
  HalfBath BedroomAbvGr KitchenAbvGr KitchenQual TotRmsAbvGrd Functional
  Fireplaces FireplaceQu GarageType GarageYrBlt GarageFinish GarageCars
  GarageArea GarageQual GarageCond PavedDrive WoodDeckSF OpenPorchSF
  EnclosedPorch 3SsnPorch ScreenPorch PoolArea PoolQC Fence MiscFeature MiscVal
  MoSold YrSold SaleType SaleCondition SalePrice""".split()


def whole(values):
  return np.round(values).astype(int)


def grades(rng, latent, shift):
  """A grade that follows the latent quality, [N] of text."""
  noisy = latent + rng.normal(0, 0.6, len(latent)) + shift
  return np.array(GRADES)[np.digitize(noisy, (-1.6, 0.3, 1.7))]


def sizes(rng, latent, data):
  n = len(latent)
  two = np.isin(data['HouseStyle'], ('2Story', '1.5Fin'))
  first = whole(np.exp(rng.normal(6.93, 0.26, n) + 0.12 * latent - 0.15 * two))
  second = whole(two * first * rng.uniform(0.5, 1.05, n))
  basement = whole(first * rng.uniform(0.75, 1.05, n) * (rng.rand(n) > 0.025))
  finished = whole(
    basement * rng.uniform(0.2, 0.9, n) * (data['BsmtFinType1'] != 'Unf')
  )
  rest = whole(
    (basement - finished) * 0.4 * (data['BsmtFinType2'] != 'Unf')
  )
  living = first + second
  rooms = np.clip(whole(living / 250 + rng.normal(1, 0.7, n)), 3, 12)
  return {
    '1stFlrSF': first,
    '2ndFlrSF': second,
    'LowQualFinSF': 0 * first,
    'GrLivArea': living,
    'TotalBsmtSF': basement,
    'BsmtFinSF1': finished,
    'BsmtFinSF2': rest,
    'BsmtUnfSF': basement - finished - rest,
    'TotRmsAbvGrd': rooms,
    'BedroomAbvGr': np.clip(whole(rooms * 0.45), 1, 6),
    'KitchenAbvGr': 1 + (data['BldgType'] == 'Duplex').astype(int),
    'FullBath': np.clip(whole(living / 900 + 0.3 * latent), 1, 3),
    'HalfBath': (rng.rand(n) < 0.2 + 0.4 * two).astype(int),
    'BsmtFullBath': ((rng.rand(n) < 0.5) & (finished > 300)).astype(int),
    'BsmtHalfBath': (rng.rand(n) < 0.05).astype(int),
    'LotArea': whole(np.exp(rng.normal(9.1, 0.4, n))),
  }


def outside(rng, data, latent, n):
  garage = data['GarageType'] != ''
  cars = garage * np.clip(whole(1.7 + 0.6 * latent + rng.normal(0, 0.5, n)), 1, 4)
  sometimes = lambda share, low, high: whole(
    (rng.rand(n) < share) * rng.uniform(low, high, n)
  )
  veneer = sometimes(0.4, 50, 500)
  fires = np.clip(whole(0.5 + 0.5 * latent + rng.normal(0, 0.5, n)), 0, 3)
  year = data['YearBuilt']
  return {
    'GarageCars': cars,
    'GarageArea': cars * whole(rng.uniform(220, 300, n)),
    'GarageYrBlt': np.where(garage, year.astype(float), np.nan),
    'GarageFinish': np.where(garage, np.array(('Unf', 'RFn', 'Fin'))[
      np.digitize(latent + rng.normal(0, 0.8, n), (-0.2, 0.8))], ''),
    'MasVnrArea': np.where(rng.rand(n) < 0.006, np.nan, veneer),
    'MasVnrType': np.where(veneer > 0, np.array(('BrkFace', 'Stone'))[
      (latent > 0.8).astype(int)], ''),
    'Fireplaces': fires,
    'FireplaceQu': np.where(fires > 0, grades(rng, latent, 0.3), ''),
    'WoodDeckSF': sometimes(0.48, 40, 300),
    'OpenPorchSF': sometimes(0.55, 20, 150),
    'EnclosedPorch': sometimes(0.14, 40, 250),
    '3SsnPorch': sometimes(0.02, 100, 250),
    'ScreenPorch': sometimes(0.08, 80, 250),
    'PoolArea': np.where(data['PoolQC'] != '', 512, 0),
    'MiscVal': np.where(data['MiscFeature'] != '', 450, 0),
    'MoSold': 1 + rng.choice(12, n),
    'YrSold': 2006 + rng.choice(5, n),
    'LotFrontage': np.where(rng.rand(n) < 0.18, np.nan, np.round(
      rng.normal(70, 18, n).clip(21, 180))),
  }  # fmt: skip


def standin():
  rng = np.random.RandomState(104)
  n = 2400
  quarter = rng.choice(len(QUARTERS), n)
  worth = rng.permutation(np.linspace(-1, 1, len(QUARTERS)))
  latent = 0.7 * worth[quarter] + rng.normal(0, 0.75, n)
  data = {'Id': np.arange(1, n + 1)}
  for column, (values, odds) in CHOICES.items():
    odds = np.array(odds, dtype=float)
    data[column] = np.array(values)[rng.choice(len(values), n, p=odds / odds.sum())]
  data['Neighborhood'] = np.array(QUARTERS)[quarter]
  data['OverallQual'] = np.clip(whole(6 + 1.35 * latent), 1, 10)
  data['OverallCond'] = np.clip(whole(rng.normal(5.6, 1.0, n)), 1, 9)
  built = np.clip(whole(1970 + 22 * latent + rng.normal(0, 20, n)), 1880, 2009)
  data['YearBuilt'] = built
  data['YearRemodAdd'] = np.maximum(
    1950, np.where(rng.rand(n) < 0.5, built, whole(rng.uniform(built, 2010)))
  )
  data.update(sizes(rng, latent, data))
  data.update(outside(rng, data, latent, n))
  data['ExterQual'] = grades(rng, latent, 0.0)
  data['KitchenQual'] = grades(rng, latent, 0.2)
  data['HeatingQC'] = grades(rng, latent, 0.8)
  data['BsmtQual'] = np.where(
    data['TotalBsmtSF'] > 0, grades(rng, latent, 0.3), ''
  )
  data['SalePrice'] = prices(rng, data, worth[quarter], latent)
  table = pd.DataFrame(data)[ORDER].astype(object)
  table = table.where(table.notna() & (table != ''), 'NA')
  return parts(*kit.last_rows(table, 0.4))


def prices(rng, data, worth, latent):
  kitchen = np.array([GRADES.index(g) for g in data['KitchenQual']])
  log = (
    7.75
    + 0.46 * np.log(data['GrLivArea'])
    + 0.085 * data['OverallQual']
    + 0.035 * data['OverallCond']
    + 0.16 * worth
    + 0.00013 * data['TotalBsmtSF']
    + 0.00008 * data['BsmtFinSF1']
    + 0.06 * data['GarageCars']
    + 0.04 * data['Fireplaces']
    + 0.05 * kitchen
    + 0.09 * (np.log(data['LotArea']) - 9.1)
    - 0.0022 * (2010 - data['YearRemodAdd'])
    - 0.0012 * (2010 - data['YearBuilt'])
    + 0.05 * (data['CentralAir'] == 'Y')
    - 0.12 * (data['SaleCondition'] == 'Abnorml')
    + 0.10 * (data['SaleType'] == 'New')
    + rng.normal(0, 0.075, len(worth))
  )
  return whole(np.exp(log) / 100) * 100


def parts(train, test):
  return kit.labelled(train, test, 'Id', ['SalePrice'], {'SalePrice': 180000})


def raw(folder):
  return parts(*kit.last_rows(kit.texts(kit.original(folder, 'train.csv'))))


if __name__ == '__main__':
  kit.prepare_from(__doc__, SOURCE, standin, None, raw)
