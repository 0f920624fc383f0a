"""Tuning: the settings of a strategy that suit the user's own runs, found on some of them and judged on others."""
