"""Reader, decoder and rules under input that nobody writes: nothing raises, hangs, grows or tells a secret."""
