"""A few of kill_rounds.py's rounds; `./x soak` runs hundreds."""

from __future__ import annotations

import random

import kill_rounds


def test_what_was_told_holds_whoever_is_killed(tmp_path):
    seed = random.SystemRandom().randrange(2**31)
    print(f"again: kill_rounds.run(5, {seed}, folder)")
    seen = kill_rounds.run(5, seed, tmp_path)
    assert sum(seen["rounds"].values()) == 5
    assert seen["told READY"] > 0
