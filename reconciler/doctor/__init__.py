"""What an operator would look at when something is wrong, looked at all at once; changes nothing."""
