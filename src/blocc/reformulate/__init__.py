"""Problems in other words: epigraphs of kinks, rounded corners, relaxed constraints, other units; and the way back."""
