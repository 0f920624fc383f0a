"""An audit of bills that agents' own logs record: every dollar has one cause."""
