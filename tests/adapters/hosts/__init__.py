"""One module for each framework, with a class `Host`; imported only where the framework is installed."""
