"""Networks and their readers, for every application: rows from outside, checked; cheapest paths; file formats."""
