"""Reader, decoder and rules under random input: nothing raises, hangs, grows or reveals a secret."""
