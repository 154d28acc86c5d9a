"""Studies on paper: tables, pictures, one page, and the line that shows how far a study has come."""
