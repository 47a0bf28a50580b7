"""``./x demo``: a real checkpoint in one layout, loaded into others, every byte checked."""
