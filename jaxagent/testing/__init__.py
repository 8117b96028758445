"""Shipped doubles: virtual clock, fake executor, fault injector, toys."""
