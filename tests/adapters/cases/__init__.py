"""Cases of one framework each, which run where the framework is installed: functions `check_*` without arguments."""
