"""Engines that sample the policy: native in JAX, and servers of vLLM."""
