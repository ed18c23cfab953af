"""What is chosen of lists, how it is named, and the values that paths find in it."""
