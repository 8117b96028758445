"""Ideas against a slow endpoint, a few of them and not so slow."""

from benchmarks import ideator_rate

DELAYS_S = (0.5, 1.0, 2.0)


def test_ideas_wait_for_a_slow_endpoint_beside_each_other(tmp_path):
  took = ideator_rate.seconds(DELAYS_S, tmp_path)
  least = DELAYS_S[-1] + ideator_rate.EXECUTION_S
  assert (
    least <= took < sum(DELAYS_S) + len(DELAYS_S) * ideator_rate.EXECUTION_S
  )
