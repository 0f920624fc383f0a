"""Report what a pass did and what it cost: to people, programs and collectors."""
