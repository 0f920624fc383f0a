"""What a pass did and what it cost, told to people, programs and collectors."""
