"""Ratings of Parkinson's disease: the median of each rating, whenever it is."""

import pandas as pd

train = pd.read_csv('data/train_clinical_data.csv')
rows = pd.read_csv('data/example_test_files/sample_submission.csv')

medians = {f'{k}': train[f'updrs_{k}'].median() for k in (1, 2, 3, 4)}
which = rows['prediction_id'].str.extract(r'updrs_(\d)')[0]

rows['rating'] = which.map(medians)
rows[['prediction_id', 'rating']].to_csv('submission.csv', index=False)
