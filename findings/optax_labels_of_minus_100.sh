#!/usr/bin/env bash
# optax: a label of -100 is a class, the hundredth from the end, and is trained.
# One would expect: labels of -100, by which Hugging Face's collators and torch's
#   cross_entropy mark what is not to be learned, are masked, refused or NaN.
# What happens: softmax_cross_entropy_with_integer_labels counts negative labels from
#   the end, so -100 of 120 classes raises the probability of class 20 and -1 (padding)
#   that of the last one; losses are finite and look like others. With fewer than 100
#   classes, or a label past the last, the loss is NaN. Masking is left to the caller.
# Versions: optax 0.2.8, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6, Python 3.11.
# Exit 0: as recorded below.
. "$(dirname "${BASH_SOURCE[0]}")/common.bash"
packages optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
program <<'PY'
import os

os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
import jax.numpy as jnp
import numpy as np
import optax

draws = np.random.default_rng(0).normal(size=(4, 120))
logits = jnp.asarray(draws, jnp.float32)
labels = jnp.array([-100, -1, 3, 120])


def losses(logits, **how):
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels, **how)


def known(logits):
  return losses(logits)[:3].sum()


found = losses(logits)
log_probs = jax.nn.log_softmax(logits)
print('losses         ', [f'{float(one):.3f}' for one in found])
print('of class 20, 119', [f'{-float(log_probs[i, c]):.3f}' for i, c in ((0, 20), (1, 119))])
slopes = jax.grad(known)(logits)[:3]
print('trained classes', np.argmin(np.asarray(slopes), axis=1).tolist())
print('of 50 classes  ', float(losses(logits[:, :50])[0]))
seen = (labels >= 0) & (labels < 120)
masked = jnp.where(seen, losses(logits), 0.0)
print('masked by hand ', [f'{float(one):.3f}' for one in masked])
PY
recorded <<'SEEN'
losses          ['5.422', '6.367', '5.748', 'nan']
of class 20, 119 ['5.422', '6.367']
trained classes [20, 119, 3]
of 50 classes   nan
masked by hand  ['0.000', '0.000', '5.748', '0.000']
SEEN
