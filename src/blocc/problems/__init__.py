"""Problems to try and to measure: the toy of the paper, textbook problems with known answers, problem files."""
