"""Rules between resources."""
