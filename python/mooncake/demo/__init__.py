"""``./x demo``: a real checkpoint published in one layout and loaded into others, every byte checked."""
