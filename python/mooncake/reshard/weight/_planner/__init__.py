"""The values that plans are made of (planner.py has the functions that make plans)."""
