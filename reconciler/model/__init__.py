"""The nouns of the project: frozen values without behaviour that touches the world."""
