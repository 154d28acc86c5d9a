"""Support vector machines whose hyperparameters are chosen by bilevel optimization."""
