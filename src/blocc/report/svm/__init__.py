"""What becomes of a fitted SVM: its numbers as tables and files, and pictures of how it came about."""
