"""The command line (typer and rich): parses, calls, prints."""
