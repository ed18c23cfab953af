"""What containers write: taken from their files into compressed segments, and found again there."""
