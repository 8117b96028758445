"""Transparent conductors: the mean of both energies by space group."""

import pandas as pd

train = pd.read_csv('data/train.csv')
test = pd.read_csv('data/test.csv')
targets = ['formation_energy_ev_natom', 'bandgap_energy_ev']

means = train.groupby('spacegroup')[targets].mean()
pred = means.reindex(test['spacegroup']).fillna(train[targets].mean())

submission = pred.reset_index(drop=True)
submission.insert(0, 'id', test['id'])
submission.to_csv('submission.csv', index=False)
