"""What the pages on the paper are made from: the facts, their statistics, tables and figures."""
